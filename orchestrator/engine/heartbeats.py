"""
Read the workers' heartbeats from the bucket.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

from orchestrator.core.names import HEARTBEAT
from orchestrator.core.world import Heartbeat, Phase, Present, Sight, Unknown
from orchestrator.errors import NotFoundError, TpuctlError
from orchestrator.ports import Store, StoredObject

_NUMBERS = (
    "incarnation",
    "worker",
    "workers",
    "step",
    "committed_step",
    "resumed_from",
    "began_at",
    "exit_code",
    "save_every",
    "rate",
    "total_steps",
)
_FIELDS = {f.name for f in fields(Heartbeat)} - {"phase", "updated"}


def parse_heartbeat(stored: StoredObject) -> Heartbeat:
    """
    Read one heartbeat; raise ValueError when it is not one.
    """
    body = json.loads(stored.data)
    if not isinstance(body, dict):
        raise ValueError(f"{stored.name} is not an object")  # noqa: TRY004 - wrong content, not a wrong call
    wrong = [key for key in _NUMBERS if not isinstance(body.get(key, 0), int | float | None)]
    if wrong:
        raise ValueError(f"{stored.name}: {', '.join(wrong)} must be numbers")
    values = {key: value for key, value in body.items() if key in _FIELDS}
    return Heartbeat(phase=Phase(body["phase"]), updated=stored.updated, **values)


class Heartbeats:
    """
    Read reports again and again; one that the list shows as it was is not read anew.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, int], Heartbeat] = {}

    def read(self, incarnation: int | None) -> Sight[tuple[Heartbeat, ...]]:
        """
        Return the last report of each worker of *incarnation*, or of all incarnations for None.

        An unreadable report is Unknown: a worker that cannot be understood is not a worker that is absent.
        """
        prefix = HEARTBEAT if incarnation is None else f"{HEARTBEAT}{incarnation}/"
        try:
            self._learn(self._store.list(prefix))
        except NotFoundError:
            return Present(())
        except TpuctlError as error:
            return Unknown(error.message, error.retry)
        except (ValueError, TypeError, KeyError) as error:
            return Unknown(f"a heartbeat cannot be read: {error}")
        return Present(tuple(sorted(self._known.values(), key=lambda b: (b.incarnation, b.worker))))

    def _learn(self, listed: list[StoredObject]) -> None:
        """
        Know what is listed, and only that.
        """
        kept = {key: self._known[key] for one in listed if (key := (one.name, one.generation)) in self._known}
        news = [one for one in listed if (one.name, one.generation) not in kept]
        if news:
            with ThreadPoolExecutor(max_workers=16) as pool:
                kept.update(found for found in pool.map(self._read, news) if found is not None)
        self._known = kept

    def _read(self, listed: StoredObject) -> tuple[tuple[str, int], Heartbeat] | None:
        """
        Read one report; its time is the list's, which is exact, unless it was replaced since.
        """
        found = self._store.read(listed.name)
        if found is None:
            return None
        found = replace(found, updated=max(listed.updated, found.updated))
        return (found.name, found.generation), parse_heartbeat(found)


def read_heartbeats(store: Store, incarnation: int | None) -> Sight[tuple[Heartbeat, ...]]:
    """
    Return the last report of each worker of *incarnation*, or of all incarnations for None, once.
    """
    return Heartbeats(store).read(incarnation)
