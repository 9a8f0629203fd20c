"""Tell a held lease object from a released one: a holder may release it without deleting it."""

from orchestrator.contract.bucket.object_names import LEASE, LEASE_RELEASED
from orchestrator.domain.ports import Store, StoredObject

SMALL = 64
"""Bytes to read of the release object."""


def current(store: Store) -> StoredObject | None:
    """Return the lease object, or None if there is none or its holder has released it. Raise TpuctlError."""
    found = store.read(LEASE)
    return None if found is None or is_released(store, found) else found


def release(store: Store, generation: int) -> None:
    """Record that the lease of this *generation* is released."""
    store.write(LEASE_RELEASED, _note(generation))


def is_released(store: Store, lease: StoredObject) -> bool:
    """Return whether the holder of *lease* has released it."""
    note = store.read(LEASE_RELEASED, limit=SMALL)
    # Compare generations: a note about an earlier lease says nothing about this one.
    return note is not None and note.data == _note(lease.generation)


def _note(generation: int) -> bytes:
    return str(generation).encode()
