"""Machine types of the VM where the usual ones may not exist."""

from orchestrator.domain.names import region_of

_INSTEAD = {"us-central2": ("e2-", "n1-standard-1")}
"""Region -> (what no certain record shows there, what is there by all records): docs/facts.md 2.3."""


def instead(machine: str, zone: str) -> str:
    """Return the type to take instead of *machine* in a zone that may not have it, "" where nothing is known."""
    lacking, there = _INSTEAD.get(region_of(zone), ("-", ""))
    return there if machine.startswith(lacking) else ""
