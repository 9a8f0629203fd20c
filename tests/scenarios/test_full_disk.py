"""The disk of the computer that watches is full: training goes on, money still ends, and nobody cries "bug"."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.engine.records import atomic_files

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"


@pytest.fixture
def disk(monkeypatch):
    """Give the disk of all computers: nothing can be written to it while it is *full*."""
    made = SimpleNamespace(full=False)

    folder = atomic_files.private_folder

    def guarded(path):
        if made.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        folder(path)

    monkeypatch.setattr(atomic_files, "private_folder", guarded)
    yield made
    made.full = False


def record_here(user):
    """Return the bytes of the record on this computer."""
    (path,) = Path(user.state).rglob("record.json")
    return path.read_bytes()


def record_there(cloud):
    """Return the bytes of the record in the bucket."""
    (bucket,) = cloud.buckets()
    return cloud.storage.objects.read(cloud.storage.objects._objects[bucket][".tpuctl/record.json"])


def test_nothing_is_made_that_could_not_be_recorded_anywhere(cloud, user, disk):
    """A first `up`: one clear error, no bug, and the cloud is as it was."""
    disk.full = True
    said = user.run("up")
    assert said.code == 1
    assert "TPU-450" in said.err
    assert "no space left on device" in said.err
    assert "next:" in said.err
    assert cloud.mutations() == []


def test_a_lost_node_is_replaced_all_the_same(cloud, user, disk):
    """Record and journal are in the bucket. That is said once, and so is that the disk takes them again."""
    user.up()
    disk.full = True
    cloud.later(300, lambda: cloud.model.preempt(G1, notice=False))
    cloud.later(1500, lambda: setattr(disk, "full", False))
    cloud.later(1600, lambda: cloud.model.preempt(G2, notice=False))
    said = user.watch(3000)
    assert said.code == 130
    assert list(cloud.nodes().values()) == ["READY"]
    assert list(cloud.nodes()) == ["demo-tpu-g3"]
    assert said.err.count("are kept in the bucket alone") == 1
    assert said.err.count("takes record and journal again") == 1
    assert record_here(user) == record_there(cloud)


def test_what_the_full_disk_missed_is_known_to_the_next_command(cloud, user, disk):
    """The older record here is not believed: the next `up` does not make a second TPU."""
    user.up()
    disk.full = True
    cloud.later(300, lambda: cloud.model.preempt(G1, notice=False))
    user.watch(1500)
    disk.full = False
    assert record_here(user) != record_there(cloud)
    before = cloud.asked("tpu.nodes.create")
    user.up()
    assert cloud.nodes() == {G2: "READY"}
    assert cloud.asked("tpu.nodes.create") == before


def test_a_spent_deployment_ends(cloud, user, disk):
    """The budget is a promise; a full disk is no excuse."""
    user.edit(watch={"poll": "60s", "budget_usd": 5})
    user.up()
    disk.full = True
    said = user.run("watch")
    assert "budget" in said.err
    assert cloud.nodes() == {}


@pytest.mark.parametrize("flags", [(), ("--delete-data",)])
def test_down_needs_no_disk(cloud, user, disk, flags):
    """Nothing is left that costs money."""
    user.up()
    disk.full = True
    assert user.run("down", "--yes", *flags).code == 0
    assert cloud.nodes() == {}
    assert cloud.vms() == {}
