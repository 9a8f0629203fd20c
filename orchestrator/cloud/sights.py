"""
Looking: answers become Present or Absent, every error becomes Unknown.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.core.world import Absent, Present, Sight, Unknown
from orchestrator.errors import NotFoundError, Retry, TpuctlError

T = TypeVar("T")

PARALLEL = 8


def seen(look: Callable[[], T | None]) -> Sight[T]:
    """
    Call *look*; None and NotFoundError are Absent, any other error of ours is Unknown.
    """
    try:
        value = look()
    except NotFoundError:
        return Absent()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)
    return Absent() if value is None else Present(value)


def across_zones(zones: Sequence[str], look: Callable[[str], Sequence[T]]) -> Sight[tuple[T, ...]]:
    """
    Call *look* for all zones in parallel; one zone that does not answer makes the whole Unknown.
    """
    names = tuple(dict.fromkeys(zones))
    if not names:
        return Present(())
    with ThreadPoolExecutor(min(PARALLEL, len(names))) as pool:
        sights = list(pool.map(lambda zone: _zone(zone, look), names))
    unknown = [sight for sight in sights if isinstance(sight, Unknown)]
    if unknown:
        return Unknown("; ".join(sight.why for sight in unknown), _worst(unknown), unknown[0].hint)
    return Present(tuple(item for sight in sights if isinstance(sight, Present) for item in sight.value))


def _zone(zone: str, look: Callable[[str], Sequence[T]]) -> Present[tuple[T, ...]] | Unknown:
    try:
        return Present(tuple(look(zone)))
    except TpuctlError as error:
        # A list never proves absence by an error, not even by 404.
        return Unknown(error.message, error.retry, error.hint)


def _worst(unknown: Sequence[Unknown]) -> Retry:
    """
    Return PERMANENT when waiting does not help for some zone, else what the first zone said.
    """
    classes = [sight.retry for sight in unknown]
    return Retry.PERMANENT if Retry.PERMANENT in classes else classes[0]
