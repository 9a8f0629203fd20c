"""Whether the lease that lies in the bucket is held: the holder may have given it back without deleting it."""

from orchestrator.contract.object_names import LEASE, LEASE_BACK
from orchestrator.domain.ports import Store, StoredObject

SMALL = 64
"""Bytes that are read of a note that a lease is given back."""


def current(store: Store) -> StoredObject | None:
    """Return the lease object, None when nobody holds it."""
    found = store.read(LEASE)
    return None if found is None or given_back(store, found) else found


def give_back(store: Store, generation: int) -> None:
    """Say that the lease of this generation is held no longer."""
    store.write(LEASE_BACK, _note(generation))


def given_back(store: Store, lease: StoredObject) -> bool:
    """Say whether the holder of this *lease* has given it back."""
    note = store.read(LEASE_BACK, limit=SMALL)
    # By the generation: a note of an earlier lease says nothing about this one.
    return note is not None and note.data == _note(lease.generation)


def _note(generation: int) -> bytes:
    return str(generation).encode()
