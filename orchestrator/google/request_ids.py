"""Derive request ids of VM inserts: the same new VM gets the same id until the id is used up."""

import json
import threading
import uuid
from typing import Any

_NAMESPACE = uuid.UUID("5b0c1a52-55f5-5d0e-9f0f-8f3f0d4b7c11")


class RequestIds:
    """
    Derive ids so that a repeated insert is the same operation, and a new insert is not taken for a repeat.

    Compute Engine remembers an id for an hour or more. After the insert failed, or the VM was deleted, the
    same id may return the old operation and no VM. So a spent id is followed by the next one of its chain.
    Only this process knows the spent ids; a new process finds out by one try.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent: set[str] = set()
        self._by_operation: dict[str, str] = {}

    def of(self, zone: str, body: dict[str, Any]) -> str:
        """Return the id for a new VM: a UUIDv5 of zone and body (name and labels are in it), never zero."""
        # From the content alone, so that the successor of a killed process sends the same id.
        found = str(uuid.uuid5(_NAMESPACE, json.dumps([zone, body], sort_keys=True)))
        with self._lock:
            while found in self._spent:
                found = str(uuid.uuid5(_NAMESPACE, found))
        return found

    def used(self, request_id: str, operation: str) -> None:
        """Record which operation an id has led to."""
        with self._lock:
            self._by_operation[operation] = request_id

    def spend(self, operation: str) -> None:
        """Mark the id of an operation that has failed, or whose VM no longer exists, as spent."""
        with self._lock:
            request_id = self._by_operation.pop(operation, None)
            if request_id is not None:
                self._spent.add(request_id)
