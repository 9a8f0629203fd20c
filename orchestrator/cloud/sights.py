"""
Lists over several zones, asked for side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from orchestrator.core.world import Present, Sight
from orchestrator.errors import TransientError
from orchestrator.gcp.sights import joined, listed

T = TypeVar("T")

PARALLEL = 8


def across_zones(zones: Sequence[str], look: Callable[[str], Sequence[T]]) -> Sight[tuple[T, ...]]:
    """
    Call *look* for all zones in parallel; one zone that does not answer makes the whole Unknown.
    """
    names = tuple(dict.fromkeys(zones))
    if not names:
        return Present(())
    with ThreadPoolExecutor(min(PARALLEL, len(names))) as pool:
        return joined(list(pool.map(lambda zone: listed(lambda: look(zone)), names)))


def whole_pages(pager: Any, what: str) -> Iterator[Any]:
    """
    Yield the pages of a list of the TPU API; raise TransientError for one that leaves a place out.

    The pager shows `unreachable` of the newest page only, so each page is looked at.
    """
    for page in pager.pages:
        if page.unreachable:
            raise TransientError(f"{what}: no answer from {', '.join(page.unreachable)}")
        yield page
