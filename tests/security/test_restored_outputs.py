"""Outputs that a machine has brought to the bucket come back on the next one: below its folder, or not at all."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from orchestrator.agent.attempt.prepare import restore_outputs
from orchestrator.agent.cloud.storage import StoredBytes

DATA = b"* * * * * root id\n"


class CompromisedBucket:
    """Hold what a compromised machine has left: a manifest that names files, at *place*."""

    def __init__(self, names, place="g1/w0", **changes):
        self.name = f"unclaimed/{place}.manifest.json"
        digest = hashlib.sha256(DATA).hexdigest()
        self.body = {
            "schema": 1, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "bundle": "b",
            "settings": "s", "format": "outputs", "why": "notice", "complete": True, "at": 1.0e9,
            "skipped": [], **changes,
            "files": [
                {"name": f"checkpoints/{name}", "size": len(DATA), "sha256": digest, "object": f"x{count}"}
                for count, name in enumerate(names)
            ],
        }  # fmt: skip

    def level(self, prefix):
        """List one level."""
        folder = self.name.rpartition("/")[0] + "/"
        return ([self.name], []) if prefix == folder else ([], ["unclaimed/g\u00b2/", folder])

    def read(self, name):
        """Return the manifest."""
        return StoredBytes(json.dumps(self.body).encode(), 1) if name == self.name else None

    def download(self, name, path, size):
        """Write what every object holds, and return its sha256."""
        path.write_bytes(DATA)
        return hashlib.sha256(DATA).hexdigest()


def bring(bucket, folder):
    """Start the machine that follows; return the files below *folder*."""
    job = SimpleNamespace(incarnation=2, worker=0, workers=1, bundle="b", settings_digest="s")
    log = SimpleNamespace(say=lambda _: None)
    local = SimpleNamespace(folder=folder)
    restore_outputs(SimpleNamespace(local=local, settings=job, bucket=bucket, log=log))
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_no_output_comes_back_outside_of_its_folder(tmp_path):
    """`checkpoints//etc/cron.d/x` is below `checkpoints`, and what follows the slash is not."""
    victim = tmp_path / "etc" / "cron.d" / "evil"
    assert bring(CompromisedBucket([victim, "a/b"]), tmp_path / "saves") == ["a/b"]
    assert not victim.exists()


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("x" * 300, "a")])
def test_outputs_that_no_folder_can_hold_do_not_stop_the_next_machine(tmp_path, names):
    """The others come back; such a name would be tried again for ever."""
    assert len(bring(CompromisedBucket(names), tmp_path / "saves")) == 1


def test_a_manifest_under_another_name_than_its_own_does_not_count(tmp_path):
    """A worker reports of itself only."""
    assert bring(CompromisedBucket(["a"], "g1/w1"), tmp_path / "saves") == []
