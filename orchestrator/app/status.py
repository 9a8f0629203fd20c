"""What exists and how far the job is: as the watcher has published it, or as the cloud shows it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.engine.published_copy import Snapshot


def newest(session: "Session", *, fresh: bool = False) -> dict[str, Any]:
    """Return the status that the watcher has published, else what the cloud shows; *fresh* asks the cloud."""
    from orchestrator.app.glance import look

    found = None if fresh else published_status(session)
    if found is not None:
        return aged_status(found)
    session.records.load()
    return look(session)


def aged_status(found: "Snapshot") -> dict[str, Any]:
    """Return a published status with its age and whose look it is."""
    from orchestrator.app.glance import aged

    by = found.body["loop"]
    return aged(found.body, found.age, "the loop on the VM" if by["where"] == "vm" else "the watcher")


def published_status(session: "Session") -> "Snapshot | None":
    """Return the Snapshot of a loop that runs here, else of one that runs elsewhere; None without one."""
    from orchestrator.engine.published_copy import published_here
    from orchestrator.engine.published_status import published
    from orchestrator.errors import TpuctlError

    found = published_here(session.folder, session.clock.now(), session.ended)
    if found is not None:
        return found
    try:
        return published(session.store, session.clock.now(), session.ended, session.key)
    except TpuctlError:
        return None  # The cloud is asked next, and says what is wrong.
