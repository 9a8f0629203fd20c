"""
Parse the upcoming maintenance of a TPU: shown to people, never a reason to act.

A TPU that works through maintenance is kept, one that is lost is replaced like any other (docs/facts.md 1.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

FIELD = "upcomingMaintenance"
ONGOING = "ONGOING"


@dataclass(frozen=True)
class Maintenance:
    """
    A maintenance; times are in seconds since the epoch, 0 if the API names none.

    *status* is PENDING or ONGOING, *kind* SCHEDULED or UNSCHEDULED, in the API's words.
    """

    status: str = ""
    kind: str = ""
    begins: float = 0.0
    ends: float = 0.0


def maintenance_of(shown: Any) -> Maintenance | None:
    """
    Return the maintenance from the JSON of a node's `upcomingMaintenance`, None if there is none.

    Unreadable values are left out, because it is only a hint.
    """
    if not isinstance(shown, Mapping) or not shown:
        return None
    status, kind = str(shown.get("maintenanceStatus", "")), str(shown.get("type", ""))
    return Maintenance(
        "" if status == "UNKNOWN" else status[:40],
        "" if kind == "UNKNOWN_TYPE" else kind[:40],
        _time(shown.get("windowStartTime")),
        _time(shown.get("windowEndTime")),
    )


def maintenance_text(found: Maintenance | None) -> str:
    """Return when a maintenance is, in words; empty for None."""
    if found is None:
        return ""
    kind = f"{found.kind.lower()} " if found.kind else ""
    if found.status == ONGOING:
        return f"{kind}maintenance now{_at(' until', found.ends)}"
    return f"{kind}maintenance announced{_at(' for', found.begins)}"


def _at(word: str, seconds: float) -> str:
    if not seconds:
        return ""
    return f"{word} {datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _time(text: Any) -> float:
    """Return an RFC 3339 time in seconds since the epoch, 0 if it is none."""
    # The API writes nine digits of a second, and Python reads six at most.
    whole, _, rest = str(text or "").partition(".")
    zone = rest.lstrip("0123456789") if rest else ""
    try:
        found = datetime.fromisoformat(f"{whole}{zone}".replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    # Google means UTC if there is no zone; Python would assume local time.
    return found.timestamp() if found.tzinfo else found.replace(tzinfo=timezone.utc).timestamp()
