"""The disk of the computer that watches is full: training goes on, money still ends, and nobody cries "bug"."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.engine import atomic_files

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"


@pytest.fixture
def disk(monkeypatch):
    """Give the disk of all computers: nothing can be written to it while it is *full*."""
    made = SimpleNamespace(full=False)

    def guarded(write):
        def written(path, data):
            if made.full:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            write(path, data)

        return written

    for name in ("_replace", "_append"):
        monkeypatch.setattr(atomic_files, name, guarded(getattr(atomic_files, name)))
    yield made
    made.full = False


def record_here(desk):
    """Return the bytes of the record on this computer."""
    (path,) = Path(desk.state).rglob("record.json")
    return path.read_bytes()


def record_there(town):
    """Return the bytes of the record in the bucket."""
    (bucket,) = town.buckets()
    return town.storage.objects.read(town.storage.objects._objects[bucket][".tpuctl/record.json"])


def test_nothing_is_made_that_could_not_be_noted_anywhere(town, desk, disk):
    """A first `up`: one clear error, no bug, and the cloud is as it was."""
    disk.full = True
    said = desk.run("up")
    assert said.code == 1
    assert "TPU-450" in said.err
    assert "no space left on device" in said.err
    assert "next:" in said.err
    assert town.mutations() == []


def test_a_lost_node_is_replaced_all_the_same(town, desk, disk):
    """Record and journal are in the bucket. That is said once, and so is that the disk takes them again."""
    desk.up()
    disk.full = True
    town.later(300, lambda: town.cloud.preempt(G1, notice=False))
    town.later(1500, lambda: setattr(disk, "full", False))
    town.later(1600, lambda: town.cloud.preempt(G2, notice=False))
    said = desk.watch(3000)
    assert said.code == 130
    assert list(town.nodes().values()) == ["READY"]
    assert list(town.nodes()) == ["demo-tpu-g3"]
    assert said.err.count("are kept in the bucket alone") == 1
    assert said.err.count("takes record and journal again") == 1
    assert record_here(desk) == record_there(town)


def test_what_the_full_disk_missed_is_known_to_the_next_command(town, desk, disk):
    """The older record here is not believed: the next `up` does not make a second TPU."""
    desk.up()
    disk.full = True
    town.later(300, lambda: town.cloud.preempt(G1, notice=False))
    desk.watch(1500)
    disk.full = False
    assert record_here(desk) != record_there(town)
    before = town.asked("tpu.nodes.create")
    desk.up()
    assert town.nodes() == {G2: "READY"}
    assert town.asked("tpu.nodes.create") == before


def test_a_spent_deployment_ends(town, desk, disk):
    """The budget is a promise; a full disk is no excuse."""
    desk.edit(watch={"poll": "60s", "budget_usd": 5})
    desk.up()
    disk.full = True
    said = desk.run("watch")
    assert "budget" in said.err
    assert town.nodes() == {}


@pytest.mark.parametrize("flags", [(), ("--delete-data",)])
def test_down_needs_no_disk(town, desk, disk, flags):
    """Nothing is left that costs money."""
    desk.up()
    disk.full = True
    assert desk.run("down", "--yes", *flags).code == 0
    assert town.nodes() == {}
    assert town.vms() == {}
