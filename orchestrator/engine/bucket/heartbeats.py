"""
Read the workers' heartbeats from the bucket.

Machines write them, and so can any program on a machine: each is validated against its model, and an invalid
one only shows that it exists.
"""

import json
import math
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any

from orchestrator.contract.bucket.heartbeat_keys import with_current_keys
from orchestrator.contract.bucket.limits import (
    ALL_HEARTBEATS,
    HEARTBEATS,
    LATEST_TIME,
    MAX_FLOAT,
    MAX_INT,
    MAX_WORKERS,
    Limit,
)
from orchestrator.contract.bucket.object_names import HEARTBEAT
from orchestrator.contract.phase import Phase
from orchestrator.contract.training import MAX_TRAININGS, Training, stored_training
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Observed, Present, Unknown
from orchestrator.domain.ports import Store, StoredObject
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.bucket.bounded_read import read_first
from orchestrator.errors import NotFoundError, TpuctlError

MAX_ENTRIES = 64
"""Most entries of a list or a table in a heartbeat."""
SLOWEST, FASTEST = 1e-7, 1e9
"""Range of believable rates, in steps per second."""
SIGNED = frozenset({"loss", "exit_code", "rate"})
# No leading zeros: two names for one worker would be two reports in an unknown order.
_NAME = re.compile(rf"{re.escape(HEARTBEAT)}(0|[1-9]\d{{0,8}})/(0|[1-9]\d{{0,3}})")


def worker_of(name: str) -> tuple[int, int] | None:
    """Return (incarnation, worker) from the name of a heartbeat's object, None for another object."""
    found = _NAME.fullmatch(name)
    worker = (int(found[1]), int(found[2])) if found else None
    return worker if worker is not None and worker[1] < MAX_WORKERS else None


def parse_heartbeat(stored: StoredObject) -> Heartbeat:
    """Parse one heartbeat; unknown fields are ignored. Raise ValueError if it does not fit the model."""
    if stored.size > HEARTBEATS.each or len(stored.data) > HEARTBEATS.each:
        raise ValueError(f"it has {max(stored.size, len(stored.data))} bytes")
    try:
        body = json.loads(stored.data)
    except RecursionError:
        raise ValueError("it is nested without end") from None
    if not isinstance(body, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - wrong content, not a wrong call
    missing = [name for name in ("incarnation", "worker", "phase") if name not in body]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")
    body = with_current_keys(body)
    values = {name: read(name, body[name]) for name, read in _readers().items() if name in body}
    heartbeat = Heartbeat(updated=stored.updated, **values)
    # Any machine can write any report: one whose content contradicts its name is rejected.
    if (heartbeat.incarnation, heartbeat.worker) != worker_of(stored.name):
        raise ValueError("it is another worker's")
    if not heartbeat.worker < heartbeat.workers <= MAX_WORKERS:
        raise ValueError(f"worker {heartbeat.worker} of {heartbeat.workers}")
    return heartbeat


def unreadable(stored: StoredObject, error: Exception) -> Heartbeat:
    """Return a heartbeat of phase UNKNOWN for an unreadable report, with its worker and its time."""
    incarnation, worker = worker_of(stored.name) or (0, 0)
    text = f"its report cannot be read: {cut(str(error), 200)}"
    return Heartbeat(incarnation, worker, Phase.UNKNOWN, stored.updated, workers=worker + 1, message=text)


@cache
def _readers() -> Mapping[str, Callable[[str, Any], Any]]:
    """Return a reader for each field by its type in Heartbeat, so that no new field goes unchecked."""
    types = typing.get_type_hints(Heartbeat)
    return {f.name: _reader(types[f.name]) for f in fields(Heartbeat) if f.name != "updated"}


def _reader(kind: Any) -> Callable[[str, Any], Any]:
    if typing.get_origin(kind) in (typing.Union, UnionType):
        (inner,) = (_reader(one) for one in typing.get_args(kind) if one is not NoneType)
        return lambda name, value: None if value is None else inner(name, value)
    plain: dict[Any, Callable[[str, Any], Any]] = {
        Phase: _phase, bool: _flag, int: _integer, float: _number, str: _text,
        Mapping[str, float]: lambda name, value: _table(name, value, _time),
        Mapping[str, int]: lambda name, value: _table(name, value, _integer),
        tuple[str, ...]: lambda name, value: _list(name, value, _text),
        tuple[int, ...]: lambda name, value: _list(name, value, _integer),
        tuple[Training, ...]: lambda name, value: _list(name, value, _training)[-MAX_TRAININGS:],
    }  # fmt: skip
    return plain[kind]


def _phase(name: str, value: Any) -> Phase:
    if not isinstance(value, str) or value == Phase.UNKNOWN.value:
        raise ValueError(f"{name} is not a phase")
    return Phase(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")  # noqa: TRY004 - wrong content
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value) if abs(value) <= MAX_INT else value
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_INT:
        raise ValueError(f"{name} is not a plausible whole number")
    if value < 0 and name not in SIGNED:
        raise ValueError(f"{name} is negative")
    return value


def _number(name: str, value: Any) -> float | None:
    """Return *value* as a number, None if it is infinite or out of range; the heartbeat stays valid."""
    if name.endswith("_at"):
        return _time(name, value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} is not a number")  # noqa: TRY004 - wrong content
    if not math.isfinite(value) or abs(value) > MAX_FLOAT:
        return None
    if name == "rate" and not SLOWEST <= value <= FASTEST:
        return None
    if value < 0 and name not in SIGNED:
        raise ValueError(f"{name} is negative")
    return float(value)


def _time(name: str, value: Any) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    if not ok or not 0 <= value <= LATEST_TIME:
        raise ValueError(f"{name} is not a time")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")  # noqa: TRY004 - wrong content
    return cut(value)


def _list(name: str, value: Any, read: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")  # noqa: TRY004 - wrong content
    return tuple(read(name, one) for one in value[:MAX_ENTRIES])


def _training(_name: str, value: Any) -> Training:
    found = stored_training(value)
    if max(found.began_at, found.until) > LATEST_TIME:
        raise ValueError("trained has a time that is none")
    return found


def _table(name: str, value: Any, read: Callable[[str, Any], Any]) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
        raise ValueError(f"{name} is not a table of at most {MAX_ENTRIES} entries")
    return {cut(key, 100): read(name, one) for key, one in value.items()}


class Heartbeats:
    """Read heartbeats repeatedly; an object whose generation has not changed is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, int], Heartbeat] = {}

    def read(self, incarnation: int | None) -> Observed[tuple[Heartbeat, ...]]:
        """
        Return the last heartbeat of each worker of *incarnation*, or of all incarnations for None.

        An unreadable heartbeat has the phase UNKNOWN: its worker is not absent, and other workers are not
        affected. If none is readable, the result is Unknown.
        """
        prefix = HEARTBEAT if incarnation is None else f"{HEARTBEAT}{incarnation}/"
        try:
            limit = ALL_HEARTBEATS if incarnation is None else HEARTBEATS
            # A list shows generations and exact times, so only changed objects are read.
            self._read_listed(self._store.list(prefix, limit.many), limit)
        except NotFoundError:
            return Present(())
        except TpuctlError as error:
            return Unknown(error.message, error.retry)
        found = sorted(self._known.values(), key=lambda b: (b.incarnation, b.worker))
        # All are unreadable: a bug of ours or an attack, but no evidence that the workers are silent.
        if found and all(heartbeat.phase is Phase.UNKNOWN for heartbeat in found):
            return Unknown(f"worker {found[0].worker}: {found[0].message}")
        return Present(tuple(found))

    def _read_listed(self, listed: list[StoredObject], limit: Limit) -> None:
        """Read new heartbeats among *listed* within *limit*, the first workers first; forget those not listed."""
        listed = [one for one in listed if worker_of(one.name) is not None]
        known = {
            key: self._known[key] for one in listed if (key := (one.name, one.generation)) in self._known
        }
        unread = [one for one in listed if (one.name, one.generation) not in known]
        unread.sort(key=lambda one: worker_of(one.name) or ())
        bodies = read_first(self._store, [one for one in unread if one.size <= limit.each], limit)
        for one in unread:
            found = one if one.size > limit.each else bodies.get(one.name)
            if one.size <= limit.each and one.name not in bodies:
                too_many = ValueError("all reports together have too many bytes")
                known[one.name, one.generation] = unreadable(one, too_many)
            elif found is not None:
                # The time in the list is exact; a read has only seconds.
                found = replace(found, updated=max(one.updated, found.updated))
                known[found.name, found.generation] = _heartbeat(found)
        # Forget objects that are not listed any more: a deleted report must not count as alive.
        self._known = known


def _heartbeat(found: StoredObject) -> Heartbeat:
    try:
        return parse_heartbeat(found)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        return unreadable(found, error)


def read_heartbeats(store: Store, incarnation: int | None) -> Observed[tuple[Heartbeat, ...]]:
    """Read once and return the last heartbeat of each worker of *incarnation* (None: of all incarnations)."""
    return Heartbeats(store).read(incarnation)
