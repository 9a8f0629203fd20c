"""What the tests of the local Cloud Storage share."""

from typing import Any

from orchestrator.clock import VirtualClock
from orchestrator.emulator.http.router import Router
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from orchestrator.emulator.state.storage.blobs import Blobs
from orchestrator.emulator.state.storage.objects import Source
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions, StoredObject

ANY = Preconditions()
MUST_NOT_EXIST = Preconditions(generation=0)


def a_storage(blobs: Blobs | None = None, **buckets: Any) -> Storage:
    """Return a storage with the bucket `data` of the project `p`."""
    storage = Storage(VirtualClock(), blobs, taken_names=["somebody-elses"])
    if not storage.buckets.list("p"):
        storage.buckets.create("p", {"name": "data", **buckets})
    return storage


def put(storage: Storage, name: str, data: bytes = b"x", **body: Any) -> StoredObject:
    """Store an object in the bucket `data`."""
    return storage.objects.insert("data", name, data, body, ANY)


def source(name: str, generation: int | None = None) -> Source:
    """Name an object of the bucket `data`."""
    return Source("data", name, generation)


def routed(storage: Storage) -> Router:
    """Return a router that serves the storage."""
    router = Router()
    storage_routes(router, storage)
    xml_routes(router, storage)
    return router
