"""Compute how long a machine waits until its next heartbeat."""

from __future__ import annotations

SOONEST = 2.0
"""Shortest pause in seconds, for a job that has just started."""


def heartbeat_pause(age: float, interval: float) -> float:
    """
    Return the seconds until the next heartbeat: a quarter of the job's *age*, at most the *interval*.

    A person who waits for the first steps sees them within seconds; a long training costs no more heartbeats.
    """
    return min(interval, max(SOONEST, age / 4))
