"""Find what a person names in the local cloud: NAME, or ZONE/NAME where one name is taken twice."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from orchestrator.errors import LocalCloudError


class Named(Protocol):
    """Say where something is and what it is called."""

    zone: str
    name: str


N = TypeVar("N", bound=Named)


def the_one(known: Iterable[N], name: str, kind: str) -> N:
    """Return the only one of *known* that is called *name*; raise LocalCloudError for none or several."""
    zone, _, short = name.rpartition("/")
    there = list(known)
    found = [item for item in there if item.name == short and zone in ("", item.zone)]
    if len(found) != 1:
        names = ", ".join(f"{item.zone}/{item.name}" for item in found or there)
        problem = f"no such {kind}" if not found else "more than one has this name"
        raise refused(f"{name}: {problem}", f"there are: {names or 'none'}")
    return found[0]


def refused(message: str, hint: str) -> LocalCloudError:
    """Return the error of a request that changed nothing."""
    return LocalCloudError(message, unchanged="nothing was changed", hint=hint)
