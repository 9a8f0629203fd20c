"""
Keep the capacity history in an object of its own, so that it survives a lost record.

The record holds the same data and is newer: the object is written after changes, at most once a minute.
"""

from dataclasses import replace

from orchestrator.contract.bucket.object_names import CAPACITY
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.machines.capacity import CapacityHistory, merged
from orchestrator.domain.observation import Present, World
from orchestrator.domain.ports import Store
from orchestrator.domain.record import Record
from orchestrator.engine.records.record_format import adapter, stored_zones, zones_of
from orchestrator.errors import NotFoundError, PreconditionError, TpuctlError

SCHEMA = 1
WRITE_INTERVAL = 60.0
"""Shortest time between two writes, in seconds."""


class SharedCapacityHistory:
    """
    Read and write the capacity history. Failures are ignored: it only improves the choice of a zone.

    The object is read at the first pass, and again after another deployment has written it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unread = True
        self._generation = 0
        self._stored: CapacityHistory = ()
        self._tried_at = float("-inf")

    def recalled(self, record: Record, world: World) -> Record:
        """Return the record with the newer of each zone's entry, from the object or from the record."""
        if not self._unread or not isinstance(world.bucket, Present):
            return record
        try:
            found = self._store.read(CAPACITY)
        except NotFoundError:
            found = None
        # Not marked as read: the next pass tries again, and `keep` writes nothing until then.
        except TpuctlError:
            return record
        self._unread = False
        self._generation = found.generation if found else 0
        self._stored = decoded(found.data) if found else ()
        history = merged(record.capacity_history, self._stored, world.observed_at)
        return record if history is record.capacity_history else replace(record, capacity_history=history)

    def keep(self, history: CapacityHistory, now: float) -> None:
        """Write *history* if they changed and the last attempt is WRITE_INTERVAL before *now*, in seconds."""
        # Not before the first read: an empty history would overwrite what other deployments have learned.
        if self._unread or history == self._stored or 0 <= now - self._tried_at < WRITE_INTERVAL:
            return
        self._tried_at = now
        try:
            # The precondition keeps us from overwriting what another deployment has written since our read.
            self._generation = self._store.write(CAPACITY, encoded(history), if_generation=self._generation)
        except PreconditionError:
            # Another deployment's write, or one of ours whose answer was lost.
            self._unread = True
        except TpuctlError:
            return
        else:
            self._stored = history


def encoded(history: CapacityHistory) -> bytes:
    """Return the object's content: JSON with a checksum."""
    zones = adapter(CapacityHistory).dump_python(history, mode="json")
    body = {"schema": SCHEMA, "places": stored_zones(zones)}
    return bytes_with_checksum(body)


def decoded(data: bytes) -> CapacityHistory:
    """Parse the object; return no history if it is damaged or of another version."""
    try:
        body = verified(data)
        history: CapacityHistory = (
            adapter(CapacityHistory).validate_python(zones_of(body["places"]))
            if body["schema"] == SCHEMA
            else ()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    return history
