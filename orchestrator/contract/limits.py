"""
How much is read and believed of what machines write to the bucket: whatever runs there may write anything.

Sizes are in bytes, times in seconds since the epoch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """Bound one look at objects of a kind: bytes of each, how *many*, and bytes of all together."""

    each: int
    many: int
    together: int


MOST_WORKERS = 4096
MANIFESTS = Limit(32 << 20, 20_000, 64 << 20)
"""A manifest of 32 MiB names some 200,000 files."""
REPORTS = Limit(64 << 10, MOST_WORKERS, 4 << 20)
"""Heartbeats of one incarnation; each look at new ones costs money."""
ALL_REPORTS = Limit(64 << 10, 100_000, 64 << 20)
"""Heartbeats of all incarnations."""
EVENTS = Limit(64 << 10, 20_000, 20_000 * (64 << 10))
COLLECTED_BYTES = 64 << 10
"""Of a file that a task leaves for the table of results."""
CLAIM = 1 << 10
WAKE = 1 << 10
"""Only the generation of a call counts; a large one would be paid for at each look."""
POINTER = 1 << 20
"""What a format reads of a checkpoint in the bucket: lists of Keras and TensorFlow, 60 at most."""
IN_MEMORY = 32 << 20
"""What an agent holds of an object that it reads whole."""

LATEST_TIME = 1e11
"""The year 5138."""
LARGEST_INT = 1 << 53
LARGEST_FLOAT = 1e30
"""Above it a loss is no loss: drawings and sums would overflow."""
