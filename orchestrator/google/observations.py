"""Observing: answers become Present or Absent, every error becomes Unknown; lists over several zones."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from orchestrator import threads
from orchestrator.domain.all_zones import Everywhere, Placed, Survey
from orchestrator.domain.observation import Absent, Present, Sight, Unknown
from orchestrator.errors import MissingPermissionError, NotFoundError, Retry, TpuctlError, TransientError

T = TypeVar("T")
P = TypeVar("P", bound=Placed)

PARALLEL = 8
"""Zones that are asked at a time."""


def observed(look: Callable[[], T | None]) -> Sight[T]:
    """Call *look*; None and NotFoundError are Absent, any other error of ours is Unknown."""
    try:
        value = look()
    except NotFoundError:
        return Absent()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint, isinstance(error, MissingPermissionError))
    return Absent() if value is None else Present(value)


def listed(look: Callable[[], Sequence[T]]) -> Present[tuple[T, ...]] | Unknown:
    """Call *look*; a list never proves absence by an error, not even by 404."""
    try:
        return Present(tuple(look()))
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)


def surveyed(look: Callable[[], Everywhere[P]]) -> Survey[P]:
    """Call *look*, a list over all zones; any error is Unknown, also 404."""
    try:
        return Present(look())
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)


def joined(sights: Sequence[Present[tuple[T, ...]] | Unknown]) -> Sight[tuple[T, ...]]:
    """Return the lists of all zones as one; one zone that does not answer makes the whole Unknown."""
    unknown = [sight for sight in sights if isinstance(sight, Unknown)]
    if unknown:
        return Unknown("; ".join(sight.why for sight in unknown), _worst(unknown), unknown[0].hint)
    return Present(tuple(item for sight in sights if isinstance(sight, Present) for item in sight.value))


def _worst(unknown: Sequence[Unknown]) -> Retry:
    """Return PERMANENT when waiting does not help for some zone, else what the first zone said."""
    classes = [sight.retry for sight in unknown]
    return Retry.PERMANENT if Retry.PERMANENT in classes else classes[0]


def across_zones(zones: Sequence[str], look: Callable[[str], Sequence[T]]) -> Sight[tuple[T, ...]]:
    """Call *look* for all zones in parallel; one zone that does not answer makes the whole Unknown."""
    names = tuple(dict.fromkeys(zones))
    if not names:
        return Present(())
    with threads.pool(min(PARALLEL, len(names))) as pool:
        return joined(list(pool.map(lambda zone: listed(lambda: look(zone)), names)))


class OverAllZones:
    """List over all zones by one call; an API that refuses such a list permanently is not asked again."""

    def __init__(self) -> None:
        self._refused: Unknown | None = None

    def ask(self, look: Callable[[], Everywhere[P]]) -> Survey[P]:
        """Call *look*; any error is Unknown."""
        if self._refused is not None:
            return self._refused
        found = surveyed(look)
        if isinstance(found, Unknown) and found.retry is not Retry.TRANSIENT:
            self._refused = found
        return found


def pages_with_gaps(pager: Any, gaps: list[str]) -> Iterator[Any]:
    """Yield the pages of a list over all zones, and add the places that it leaves out to *gaps*."""
    for page in pager.pages:
        gaps += [str(place).rpartition("/")[2] for place in page.unreachable]
        yield page


def whole_pages(pager: Any, what: str) -> Iterator[Any]:
    """
    Yield the pages of a list of the TPU API; raise TransientError for one that leaves a place out.

    The pager shows `unreachable` of the newest page only, so each page is looked at.
    """
    for page in pager.pages:
        if page.unreachable:
            raise TransientError(f"{what}: no answer from {', '.join(page.unreachable)}")
        yield page
