"""What `tpuctl checkpoints` knows: the agent's own rules over the bucket, through the real store."""

import hashlib
import json

import pytest

from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.engine.bucket.checkpoints import damage_of, read_checkpoints
from tests.agent import format_trees as trees
from tests.google.adapter_lab import a_bucket, a_lab

DATA = {"state.json": b"{}", "part/weights": b"w" * 5000}
MARKER = CheckpointSpec()


@pytest.fixture
def store():
    """Return the store of an empty bucket."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    return lab.store()


def commit(store, step, *, incarnation=1, worker=0, workers=1, attempt=1, data=DATA):
    """Write what an agent writes: files, then the manifest."""
    files = tuple(StoredFile(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(data.items()))
    for name, content in data.items():
        store.write(file_name(step, incarnation, worker, name), content)
    manifest = Manifest(step, incarnation, worker, workers, attempt, f"step-{step}", files, 1.0)
    store.write(manifest_name(step, incarnation, worker), manifest.text().encode())


def test_complete_ones_come_newest_first_with_size_and_workers(store):
    """The first is what the next start resumes from."""
    for step in (10, 30, 20):
        commit(store, step)
    for worker in (0, 1):
        commit(store, 30, incarnation=2, worker=worker, workers=2)
    found = read_checkpoints(store, MARKER)
    assert [(one.step, one.incarnation, one.workers) for one in found] == [
        (30, 2, 2), (30, 1, 1), (20, 1, 1), (10, 1, 1)
    ]  # fmt: skip
    assert all(one.complete and not one.message for one in found)
    assert [one.size for one in found] == [10004, 5002, 5002, 5002]
    assert all(damage_of(store, one) == [] for one in found)


def test_the_manifest_of_very_many_files_is_read_to_its_end(store):
    """Some 40,000 files take 5 MiB; here a long note takes their place."""
    commit(store, 20)
    name = manifest_name(20, 1, 0)
    whole = json.loads(store.read(name).data)
    store.write(name, json.dumps({**whole, "note": "n" * (5 << 20)}).encode())
    (found,) = read_checkpoints(store, MARKER)
    assert (found.complete, found.message) == (True, "")


def no_manifest(store):
    """Cut an upload before its manifest."""
    store.delete(manifest_name(20, 1, 0))


def one_worker(store):
    """Let one of two workers be missing."""
    commit(store, 20, worker=0, workers=2)


def two_attempts(store):
    """Let two workers commit in different attempts."""
    commit(store, 20, worker=0, workers=2)
    commit(store, 20, worker=1, workers=2, attempt=2)


def lost_file(store):
    """Lose a file behind its manifest."""
    store.delete(file_name(20, 1, 0, "state.json"))


def short_file(store):
    """Cut a file behind its manifest."""
    store.write(file_name(20, 1, 0, "part/weights"), b"w")


def broken_manifest(store):
    """Write half a manifest."""
    store.write(manifest_name(20, 1, 0), b'{"schema": 1')


def suspect(store):
    """Do what the crash-loop breaker does."""
    name = manifest_name(20, 1, 0)
    store.write(f"{name}.suspect", store.read(name).data)
    store.delete(name)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (no_manifest, "no manifest: the upload did not end"),
        (one_worker, "parts of 1 of 2 workers"),
        (two_attempts, "of different attempts"),
        (lost_file, "state.json of worker 0 is missing"),
        (short_file, "part/weights of worker 0 has 1 bytes, not 5000"),
        (broken_manifest, "is not a manifest"),
        (suspect, "set aside: every start from it ended alike"),
    ],
)
def test_what_is_not_complete_says_why(store, harm, why):
    """A torn one stands in the list, and the one before is the one to resume."""
    commit(store, 10)
    commit(store, 20)
    harm(store)
    torn, whole = read_checkpoints(store, MARKER)
    assert (torn.step, torn.complete, whole.complete) == (20, False, True)
    assert why in torn.message


def test_a_checkpoint_that_was_set_aside_keeps_its_age():
    """Its manifest is written anew, long after its bytes."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    store = lab.store()
    commit(store, 20)
    (before,) = read_checkpoints(store, MARKER)
    lab.clock.wait(500)
    suspect(store)
    (aside,) = read_checkpoints(store, MARKER)
    assert (aside.complete, aside.saved_at) == (False, before.saved_at)


def test_verify_finds_other_bytes_of_the_same_length(store):
    """Only reading finds what sizes do not show."""
    commit(store, 20)
    name = file_name(20, 1, 0, "part/weights")
    store.write(name, b"x" * 5000)
    (one,) = read_checkpoints(store, MARKER)
    assert one.complete
    assert damage_of(store, one) == [f"{name} has another sha256 than its manifest says"]
    store.delete(name)
    assert damage_of(store, one) == [f"{name} is missing"]


def test_orbax_in_the_bucket_counts_by_its_commit_object(store):
    """A killed save left objects without the last one."""
    for name in ("40/default/array", "40/commit_success.txt", "50/default/array"):
        store.write(f"checkpoints/{name}", b"12345")
    found = read_checkpoints(store, CheckpointSpec(format="orbax", dir="bucket"))
    assert [(one.step, one.complete, one.size, one.incarnation) for one in found] == [
        (50, False, 5, None), (40, True, 10, None)
    ]  # fmt: skip
    assert "no commit_success.txt" in found[0].message
    assert damage_of(store, found[1]) == []


def test_tensorflow_in_the_bucket_counts_by_its_list(store):
    """The newest that the file `checkpoint` names; one without a shard does not count."""
    for step in (20, 40):
        for name, data in trees.files("tf", step):
            store.write(f"checkpoints/{name}", data)
    store.write("checkpoints/checkpoint", trees.files("tf", 20)[-1][1])
    found = read_checkpoints(store, CheckpointSpec(format="tf", dir="bucket"))
    assert [(one.step, one.complete, one.message) for one in found] == [
        (40, False, "not named in checkpoint"), (20, True, "")
    ]  # fmt: skip


def test_an_object_of_any_size_is_summed(store):
    """Also an empty one; what is not there is None."""
    store.write("empty", b"")
    assert store.sha256("empty") == hashlib.sha256(b"").hexdigest()
    assert store.sha256("gone") is None
