"""Several deployments in one bucket that somebody else has made: each keeps to its own folder."""

import pytest

from orchestrator.contract.bucket.object_names import RECORD
from tests.kit.user import User

BUCKET = "lab-bucket"


@pytest.fixture
def shared(cloud):
    """Make the bucket, with an object of the people it belongs to."""
    cloud.storage.buckets.create("local-project", {"name": BUCKET, "location": "EUROPE-WEST4"})
    cloud.put_object("runs/a/notes.txt", b"theirs")
    return cloud


def owner(cloud, name, prefix, **more):
    """Return the computer of one of those who share the bucket."""
    file = {"bucket__name": BUCKET, "bucket__adopt": True, **({"bucket__prefix": prefix} if prefix else {})}
    return User(cloud, f"home-{name}", name=name, **file, **more)


def test_two_train_side_by_side_and_each_goes_on_from_its_own_checkpoint(shared):
    """One is lost and comes back; the other has saved later steps, which are not taken for its own."""
    one, other = owner(shared, "one", "runs/a"), owner(shared, "other", "runs/b")
    other.up()
    shared.wait(4 * 3600)
    one.up()
    shared.wait(1800)
    mine = max(shared.machines.complete(BUCKET, "runs/a/"))
    assert mine < max(shared.machines.complete(BUCKET, "runs/b/"))
    shared.model.preempt("one-tpu-g1", notice=False)
    one.watch(1800)
    worker = next(w for w in shared.machines.workers.values() if w.env.get("TPUCTL_DEPLOYMENT") == "one")
    assert (worker.incarnation, worker.base) == (2, mine[0])
    assert all(name.startswith(("runs/a/", "runs/b/")) for name in shared.objects())


def test_down_with_data_deletes_one_folder_and_nothing_beside_it(shared):
    """The other one goes on; what is not tpuctl's stays, even in the folder that was given to it."""
    one, other = owner(shared, "one", "runs/a"), owner(shared, "other", "runs/b")
    for user in (one, other):
        user.up()
    shared.wait(1800)
    theirs = shared.objects("runs/b/")
    said = one.down("--delete-data")
    assert f"the data in gs://{BUCKET}/runs/a/" in said.err
    assert shared.objects("runs/a/") == ["runs/a/notes.txt"]
    assert set(theirs) <= set(shared.objects("runs/b/"))
    assert shared.buckets() == [BUCKET]
    assert other.run("status").code == 0


def test_down_keeps_the_folder_and_says_where_it_is(shared):
    """Without --delete-data the next `up` finds its checkpoints again."""
    one = owner(shared, "one", "runs/a")
    one.up()
    shared.wait(1800)
    said = one.down()
    assert f"data is kept in gs://{BUCKET}/runs/a" in said.err
    assert shared.machines.complete(BUCKET, "runs/a/")


def test_a_folder_with_the_record_of_another_deployment_is_neither_used_nor_deleted(shared):
    """A prefix that was typed twice: the second one is refused, and `down --delete-data` leaves the data."""
    one, twin = owner(shared, "one", "runs/a"), owner(shared, "twin", "runs/a")
    one.up()
    said = twin.run("up")
    assert said.code == 1
    assert "belongs to the deployment one" in said.err
    assert twin.run("down", "--yes", "--delete-data").code == 5
    assert f"runs/a/{RECORD}" in shared.objects()
    twin.edit(name="twin")
    one.down("--delete-data")


def test_a_deployment_without_a_folder_stays_where_it_was(shared):
    """A deployment of before lies at the top of its bucket, and another one moves in below it."""
    first, second = owner(shared, "first", ""), owner(shared, "second", "runs/b")
    first.up()
    second.up()
    shared.wait(1800)
    assert {RECORD, f"runs/b/{RECORD}"} <= set(shared.objects())
    second.down("--delete-data")
    assert [name for name in shared.objects() if name.startswith("runs/b/")] == []
    assert first.run("status").code == 0
