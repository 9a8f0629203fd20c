"""Lists over several zones, requested in parallel."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from orchestrator import threads
from orchestrator.domain.all_zones import Everywhere, Placed, Survey
from orchestrator.domain.observation import Present, Sight, Unknown
from orchestrator.errors import Retry, TransientError
from orchestrator.google.observations import joined, listed, surveyed

T = TypeVar("T")
P = TypeVar("P", bound=Placed)

PARALLEL = 8


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
        seen = surveyed(look)
        if isinstance(seen, Unknown) and seen.retry is not Retry.TRANSIENT:
            self._refused = seen
        return seen


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
