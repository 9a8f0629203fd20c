"""Choose a VM machine type for zones that may lack the usual ones; what one takes of a quota."""

from dataclasses import dataclass

from orchestrator.domain.names import region_of

_INSTEAD = {"us-central2": ("e2-", "n1-standard-1")}
"""Region -> (prefix of types with no certain record there, type with records only): docs/facts.md 2.3."""


@dataclass(frozen=True)
class CpuQuota:
    """Limit and use of CPUS in the region, and how many the VM takes."""

    limit: float
    usage: float
    wanted: int


def instead(machine: str, zone: str) -> str:
    """Return the type to use instead of *machine* in a zone that may lack it, "" if it has it."""
    lacking, there = _INSTEAD.get(region_of(zone), ("-", ""))
    return there if machine.startswith(lacking) else ""
