"""
A state that can be put back: cloud, bucket, machines, disks and time of a deployment as one value.

A killed process loses its memory and leaves the state as it is. So the state at a point of a run *is* what
a kill at that point leaves behind: it is frozen there, the run goes on, and whoever comes back starts from
the frozen state. Nothing is raised inside the code under test, and no part of a run is run twice.
"""

import os
import pickle
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from orchestrator.emulator.state import call_gate
from orchestrator.engine.reconcile import artifacts
from orchestrator.engine.records import atomic_files, journal, record_store
from orchestrator.threads import one_after_the_other
from tests.crash.ports import Port, watched
from tests.engine.engine_lab import PROJECT, EngineLab
from tests.kit.quick_clients import QUICK

READS = re.compile(r"\.(get|list|aggregatedList|getIamPolicy|getGuestAttributes|getStorageLayout)$")
HERE, ELSEWHERE = f"here/{PROJECT}/demo", f"elsewhere/{PROJECT}/demo"
"""The state folders of two computers."""


def storage_parts(storage):
    """Return what makes up the state of the model's storage: holders with the names of what they hold."""
    return (
        (storage.buckets, ("_buckets", "taken")),
        (storage.objects, ("_objects", "_names")),
        (storage.objects._blobs, ("_blobs", "_records")),
        (storage.uploads, ("_sessions",)),
        (storage, ("_generation",)),
    )


@dataclass(frozen=True)
class Point:
    """Name a point of a run, and hold the state that a kill there leaves behind; *alike* is of `fingerprint.py`."""

    what: str
    state: bytes
    alike: bytes = b""


class CrashLab(EngineLab):
    """A lab whose every mutating step has a point before and a point after it."""

    def __init__(self, folder, **settings):
        super().__init__(folder, **settings)
        self.remote = Port("Remote", self.remote, self)
        self.calling, self.callers = [], defaultdict(set)
        self.hidden_since = self.hidden_until = 0.0
        self._points, self.alike = None, lambda _: b""

    def open(self, spec):
        """Return the adapters for one deployment; each method that is called is known while it runs."""
        return watched(super().open(spec), self)

    def controller(self, spec=None, state=HERE, **parts):
        return super().controller(spec, state, **parts)

    def age_lists(self, seconds):
        """For so long from now, show no TPU in lists that was made within so long before now."""
        now = self.clock.now()
        self.hidden_since, self.hidden_until = now - seconds, now + seconds

    # Points.

    def step(self, what, make):
        """Make one mutating step; the state is frozen before and after it while points are taken."""
        name = f"{self.calling[-1]}: {what}" if self.calling else what
        self._freeze(f"before {name}")
        try:
            return make()
        finally:
            self._freeze(f"after {name}")
            if self._points is not None:
                self.callers[what].update(self.calling)

    def _freeze(self, what):
        if self._points is None:
            return
        state = self.freeze()
        if self._points and self._points[-1].state == state:
            what = f"{self._points.pop().what}, {what}"
        self._points.append(Point(what, state, self.alike(self)))

    def points(self, run):
        """
        Make a run and return its points; its end is one of them.

        Points between which nothing has changed, nor time has passed, are one.
        """
        self._points = []
        try:
            run(self)
            self._freeze("after the end")
            return self._points
        finally:
            self._points = None

    # The state as a value.

    def _parts(self):
        return (
            *storage_parts(self.storage),
            (self.clock, ("_now", "_elapsed")),
            (self.machines, ("silent", "running", "starts", "incarnations", "waiting")),
            (self, ("processes", "ended")),
            (self.cloud.kernel, ("state", "settings")),
        )

    def freeze(self):
        """Return the state as it is now."""
        values = [[getattr(part, name) for name in names] for part, names in self._parts()]
        return pickle.dumps((values, {path: path.read_bytes() for path in self._disks()}))

    def thaw(self, state):
        """Put a frozen state back."""
        values, disks = pickle.loads(state)  # noqa: S301 - written by `freeze` of this process
        for (part, names), found in zip(self._parts(), values, strict=True):
            for name, value in zip(names, found, strict=True):
                setattr(part, name, value)
        for path in self._disks():
            path.unlink()
        for path, data in disks.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def _disks(self):
        places = [self.folder / HERE, self.folder / ELSEWHERE]
        return [Path(entry.path) for place in places if place.exists() for entry in os.scandir(place)]


@contextmanager
def one_thread(lab):
    """Let everything of the engine happen in this thread, each write to the disk and each mutating call a step."""
    answered = call_gate._answered

    def called(method, fault, make):
        if READS.search(method):
            return answered(method, fault, make)
        return lab.step(method, lambda: answered(method, fault, make))

    def saved(what, write):
        return lambda *words: lab.step(what, lambda: write(*words))

    changes = [
        (call_gate, "_answered", called),
        # A kill of the process loses nothing that was not synced.
        (atomic_files.os, "fsync", lambda _: None),
        (record_store, "write_private", saved("save the record", record_store.write_private)),
        (artifacts, "write_private", saved("save the code", artifacts.write_private)),
        (journal, "append_synced", saved("write the journal", journal.append_synced)),
        *QUICK,
    ]
    patches = [mock.patch.object(*change) for change in changes]
    for patch in patches:
        patch.start()
    try:
        with one_after_the_other():
            yield lab
    finally:
        for patch in patches:
            patch.stop()
