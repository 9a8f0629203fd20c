"""
Limit how much is read of what machines write to the bucket, because any program there may write anything.

Sizes are in bytes, times in seconds since the epoch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """Limit one read of objects of a kind: bytes of each, how *many*, and bytes of all together."""

    each: int
    many: int
    together: int


MAX_WORKERS = 4096
MANIFESTS = Limit(32 << 20, 20_000, 64 << 20)
"""A manifest of 32 MiB names about 200,000 files."""
HEARTBEATS = Limit(64 << 10, MAX_WORKERS, 4 << 20)
"""Heartbeats of one incarnation; each read of new ones costs money."""
ALL_HEARTBEATS = Limit(64 << 10, 100_000, 64 << 20)
"""Heartbeats of all incarnations."""
EVENTS = Limit(64 << 10, 20_000, 20_000 * (64 << 10))
COLLECTED_BYTES = 64 << 10
"""Of a file that a task leaves for the results table."""
CLAIM = 1 << 10
WAKE = 1 << 10
"""Only the object's generation counts; a large object would be paid for at each read."""
POINTER = 1 << 20
"""Index files in the bucket that a format reads: lists of Keras and TensorFlow, at most 60."""
IN_MEMORY = 32 << 20
"""Of an object that an agent reads as a whole."""

LATEST_TIME = 1e11
"""Latest time that is believed, in the year 5138."""
MAX_INT = 1 << 53
MAX_FLOAT = 1e30
"""A larger loss is no loss, and would overflow plots and sums."""
