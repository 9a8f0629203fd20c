"""Choose a VM machine type for zones that may lack the usual ones."""

from orchestrator.domain.names import region_of

_INSTEAD = {"us-central2": ("e2-", "n1-standard-1")}
"""Region -> (prefix of types with no certain record there, type with records only): docs/facts.md 2.3."""


def instead(machine: str, zone: str) -> str:
    """Return the type to use instead of *machine* in a zone that may lack it, "" if it has it."""
    lacking, there = _INSTEAD.get(region_of(zone), ("-", ""))
    return there if machine.startswith(lacking) else ""
