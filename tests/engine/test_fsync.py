"""What is written down before a call is on the disk by then: a computer that loses its power forgets none of it."""

import os
import stat

import pytest

from orchestrator.engine.records import atomic_files
from orchestrator.threads import one_after_the_other
from tests.engine.engine_lab import EngineLab

NOTES = ("journal.jsonl", "record.json")


class PowerLossDisk:
    """Know how much of each file would outlive a loss of power now."""

    def __init__(self):
        self._safe, self._named = {}, set()

    def sync(self, handle):
        """Bring a file or the names in a folder to the disk, as `os.fsync` does."""
        observed = os.fstat(handle)
        if stat.S_ISDIR(observed.st_mode):
            with os.scandir(handle) as entries:
                self._named = {(observed.st_ino, entry.name, entry.inode()) for entry in entries}
        else:
            self._safe[observed.st_ino] = observed.st_size

    def lost(self, path):
        """Return how many bytes of a file would be lost: all of them when its name would be."""
        observed = path.stat()
        named = (path.parent.stat().st_ino, path.name, observed.st_ino) in self._named
        return observed.st_size - (self._safe.get(observed.st_ino, 0) if named else 0)


@pytest.fixture
def disk(monkeypatch):
    """Give a disk that sees each `fsync`; of changes side by side, one is made after the other."""
    made = PowerLossDisk()
    monkeypatch.setattr(atomic_files.os, "fsync", made.sync)
    with one_after_the_other():
        yield made


def test_notes_are_on_the_disk_before_each_call(tmp_path, disk):
    """Bucket, VM and TPU are made, replaced and deleted: at each call the notes of this computer are safe."""
    lab, calls = EngineLab(tmp_path), []

    def look(what):
        if "/o" in what:
            return  # An object of the bucket is itself a note.
        there = [path for name in NOTES if (path := tmp_path / "state" / name).exists()]
        calls.append((what, [path.name for path in there], [disk.lost(path) for path in there]))

    lab.wire.before = look
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    controller.deletion().machines()
    methods = {what.split()[0] for what, _, _ in calls}
    assert {"POST", "DELETE"} <= methods
    assert len(calls) >= 6
    assert [call for call in calls if call[1] != list(NOTES) or any(call[2])] == []
