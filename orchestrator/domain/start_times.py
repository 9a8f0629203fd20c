"""Divide the start of a job on a machine by what it waited for, from the times in the machine's heartbeat."""

from collections.abc import Mapping

_READY = ("restore_began", "fetched", "unpacked", "setup_began", "setup_done")


def ready_at(times: Mapping[str, float]) -> float | None:
    """Return when code, packages and setup were done, so that only the checkpoint was missing; None if unknown."""
    return max((times[name] for name in _READY if name in times), default=None)


def prepared_at(times: Mapping[str, float]) -> float | None:
    """
    Return when nothing was missing for the job's start, also not the checkpoint; None if unknown.

    The checkpoint is downloaded beside code, packages and setup: only what comes after these is a wait for it.
    """
    known = [at for at in (ready_at(times), times.get("restored")) if at is not None]
    return max(known, default=times.get("spawned"))
