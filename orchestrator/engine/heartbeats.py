"""
Read the workers' heartbeats from the bucket.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

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


def read_heartbeats(store: Store, incarnation: int | None) -> Sight[tuple[Heartbeat, ...]]:
    """
    Return the last report of each worker of *incarnation*, or of all incarnations for None.

    An unreadable report is Unknown: a worker that cannot be understood is not a worker that is absent.
    """
    prefix = HEARTBEAT if incarnation is None else f"{HEARTBEAT}{incarnation}/"
    try:
        found = store.list(prefix)
        with ThreadPoolExecutor(max_workers=16) as pool:
            bodies = [b for b in pool.map(lambda o: store.read(o.name), found) if b is not None]
        beats = tuple(parse_heartbeat(b) for b in bodies)
    except NotFoundError:
        return Present(())
    except TpuctlError as error:
        return Unknown(error.message, error.retry)
    except (ValueError, TypeError, KeyError) as error:
        return Unknown(f"a heartbeat cannot be read: {error}")
    return Present(tuple(sorted(beats, key=lambda b: (b.incarnation, b.worker))))
