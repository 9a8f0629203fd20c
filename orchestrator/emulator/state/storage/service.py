"""Combine all of Cloud Storage in one object, for the daemon or a simulation."""

import threading
from collections.abc import Collection

from orchestrator.clock import Clock
from orchestrator.emulator.state.storage.blobs import Blobs, MemoryBlobs
from orchestrator.emulator.state.storage.buckets import Buckets
from orchestrator.emulator.state.storage.objects import Objects
from orchestrator.emulator.state.storage.uploads import Uploads


class Storage:
    """
    Buckets, objects and uploads over one backend.

    *taken_names* are bucket names of other owners, *object_interval* the minimum seconds between two changes
    of one object (0: none), *policy_delay* those until a changed IAM policy applies. Parallel callers hold
    *lock* around each request; the HTTP layer does. Blobs that no record names were left by a killed process,
    and are removed at the start.
    """

    def __init__(
        self,
        clock: Clock,
        blobs: Blobs | None = None,
        taken_names: Collection[str] = (),
        object_interval: float = 0.0,
        policy_delay: float = 0.0,
    ) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        backend = MemoryBlobs() if blobs is None else blobs
        self._generation = 0
        self.buckets = Buckets(clock, backend, self._next_generation, taken_names, policy_delay)
        self.objects = Objects(clock, backend, self._next_generation, object_interval)
        self.uploads = Uploads(clock, backend, self.objects)
        held = self.objects.all()
        self._generation = max((one.generation for one in held), default=0)
        # Bytes without a record were left by a killed process and would stay forever.
        for orphan in {*backend.blobs()} - {one.blob for one in held} - {*self.uploads.ids()}:
            backend.remove(orphan)

    def _next_generation(self) -> int:
        """Return a number larger than any before, in microseconds like real generations."""
        self._generation = max(self._generation + 1, int(self.clock.now() * 1_000_000))
        return self._generation
