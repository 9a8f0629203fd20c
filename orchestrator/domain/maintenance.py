"""
What the API says of the next maintenance of a TPU: shown to people, and no reason to act.

A TPU that works through it is kept, one that is taken away is replaced as any other (docs/facts.md 1.3).
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
    Describe a maintenance; times are in seconds since the epoch, 0 where the API names none.

    *status* is PENDING or ONGOING, *kind* SCHEDULED or UNSCHEDULED, in the words of the API.
    """

    status: str = ""
    kind: str = ""
    begins: float = 0.0
    ends: float = 0.0


def maintenance_of(shown: Any) -> Maintenance | None:
    """
    Return the maintenance from the JSON of a node's `upcomingMaintenance`, None where there is none.

    What cannot be read is left out: it is a hint only.
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
    """Say when a maintenance is; empty for none."""
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
    """Return an RFC 3339 time in seconds since the epoch, 0 for none."""
    # Python reads at most six digits of a second, and the API writes nine.
    whole, _, rest = str(text or "").partition(".")
    zone = rest.lstrip("0123456789") if rest else ""
    try:
        found = datetime.fromisoformat(f"{whole}{zone}".replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    # A time without a zone is UTC with Google, and must not be read as this computer's.
    return found.timestamp() if found.tzinfo else found.replace(tzinfo=timezone.utc).timestamp()
