"""Compute how long a machine waits until its next report."""

from __future__ import annotations

SOONEST = 2.0
"""Shortest pause in seconds, for a job that has just started."""


def report_pause(age: float, heartbeat: float) -> float:
    """
    Return the seconds until the next report: a quarter of the job's *age*, at most a *heartbeat*.

    A person who waits for the first steps sees them within seconds; a long training costs no more reports.
    """
    return min(heartbeat, max(SOONEST, age / 4))
