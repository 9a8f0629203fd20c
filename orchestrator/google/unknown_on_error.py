"""Turn answers into Present or Absent and every error into Unknown, for one resource and for lists over zones."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from orchestrator import threads
from orchestrator.domain.all_zones import AllZones, InZone, ObservedAllZones
from orchestrator.domain.observation import Absent, Observed, Present, Unknown
from orchestrator.errors import MissingPermissionError, NotFoundError, Retry, TpuctlError, TransientError

T = TypeVar("T")
P = TypeVar("P", bound=InZone)

PARALLEL = 8
"""Zones that are listed in parallel."""


def observed(read: Callable[[], T | None]) -> Observed[T]:
    """Call *read*; None and NotFoundError become Absent, any other error of ours Unknown."""
    try:
        value = read()
    except NotFoundError:
        return Absent()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint, isinstance(error, MissingPermissionError))
    return Absent() if value is None else Present(value)


def listed(read: Callable[[], Sequence[T]]) -> Present[tuple[T, ...]] | Unknown:
    """Call *read*, a list; any error becomes Unknown, because not even a 404 of a list proves absence."""
    try:
        return Present(tuple(read()))
    # Also a 404: it may come from a wrong project or zone.
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)


def all_zones_observed(read: Callable[[], AllZones[P]]) -> ObservedAllZones[P]:
    """Call *read*, a list over all zones; any error becomes Unknown, also a 404."""
    try:
        return Present(read())
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)


def joined(observations: Sequence[Present[tuple[T, ...]] | Unknown]) -> Observed[tuple[T, ...]]:
    """Return the lists of all zones as one; Unknown if one zone does not answer."""
    unknown = [observed for observed in observations if isinstance(observed, Unknown)]
    if unknown:
        return Unknown(
            "; ".join(dict.fromkeys(observed.message for observed in unknown)),
            _worst(unknown),
            unknown[0].hint,
        )
    return Present(
        tuple(item for observed in observations if isinstance(observed, Present) for item in observed.value)
    )


def _worst(unknown: Sequence[Unknown]) -> Retry:
    """Return PERMANENT if waiting does not help for some zone, else the first zone's class."""
    classes = [observed.retry for observed in unknown]
    return Retry.PERMANENT if Retry.PERMANENT in classes else classes[0]


def across_zones(zones: Sequence[str], read: Callable[[str], Sequence[T]]) -> Observed[tuple[T, ...]]:
    """Call *read* for all zones in parallel; Unknown if one zone does not answer."""
    names = tuple(dict.fromkeys(zones))
    if not names:
        return Present(())
    with threads.pool(min(PARALLEL, len(names))) as pool:
        return joined(list(pool.map(lambda zone: listed(lambda: read(zone)), names)))


class OverAllZones:
    """List over all zones by one call; after a permanent refusal of such lists the API is not asked again."""

    def __init__(self) -> None:
        self._refused: Unknown | None = None

    def ask(self, read: Callable[[], AllZones[P]]) -> ObservedAllZones[P]:
        """Call *read*; any error becomes Unknown."""
        if self._refused is not None:
            return self._refused
        found = all_zones_observed(read)
        if isinstance(found, Unknown) and found.retry is not Retry.TRANSIENT:
            self._refused = found
        return found


def pages_with_gaps(pager: Any, gaps: list[str]) -> Iterator[Any]:
    """Yield the pages of a list over all zones, and add the places that it omits to *gaps*."""
    for page in pager.pages:
        gaps += [str(place).rpartition("/")[2] for place in page.unreachable]
        yield page


def whole_pages(pager: Any, what: str) -> Iterator[Any]:
    """
    Yield the pages of a list of the TPU API; raise TransientError for one that omits a place.

    The pager has `unreachable` of the newest page only, so each page is checked.
    """
    for page in pager.pages:
        if page.unreachable:
            raise TransientError(f"{what}: no answer from {', '.join(page.unreachable)}")
        yield page
