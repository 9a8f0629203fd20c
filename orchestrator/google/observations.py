"""Looking: answers become Present or Absent, every error becomes Unknown."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.domain.all_zones import Everywhere, Placed, Survey
from orchestrator.domain.observation import Absent, Present, Sight, Unknown
from orchestrator.errors import MissingPermissionError, NotFoundError, Retry, TpuctlError

T = TypeVar("T")
P = TypeVar("P", bound=Placed)


def seen(look: Callable[[], T | None]) -> Sight[T]:
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
