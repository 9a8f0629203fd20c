"""Request ids of VM inserts: the same order gives the same id, until that id has served."""

import json
import threading
import uuid
from typing import Any

_NAMESPACE = uuid.UUID("5b0c1a52-55f5-5d0e-9f0f-8f3f0d4b7c11")


class RequestIds:
    """
    Give ids so that a repeated insert is the same operation, and a new one is not taken for a repeat.

    Compute Engine remembers an id for an hour or more. After the insert failed, or the VM was deleted,
    the same id may bring back the old operation and no VM. So a spent id is followed by the next one of
    its chain. What is spent is known in this process only; a new process finds out with one try.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent: set[str] = set()
        self._by_operation: dict[str, str] = {}

    def of(self, zone: str, body: dict[str, Any]) -> str:
        """Return the id for an order: a UUIDv5 of zone and body (name and labels are in it), never zero."""
        # From the content alone: a process that was killed after its insert asks with the same id again.
        found = str(uuid.uuid5(_NAMESPACE, json.dumps([zone, body], sort_keys=True)))
        with self._lock:
            while found in self._spent:
                found = str(uuid.uuid5(_NAMESPACE, found))
        return found

    def used(self, request_id: str, operation: str) -> None:
        """Remember which operation came of an id."""
        with self._lock:
            self._by_operation[operation] = request_id

    def spend(self, operation: str) -> None:
        """Give up the id of an operation that has failed or whose VM is gone."""
        with self._lock:
            request_id = self._by_operation.pop(operation, None)
            if request_id is not None:
                self._spent.add(request_id)
