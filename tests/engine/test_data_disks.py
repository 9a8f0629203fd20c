"""Disks of the user: attached to each TPU as the file says, looked at before it is asked for, never touched."""

import pytest

from orchestrator.domain.observation import NodeState
from orchestrator.errors import TpuctlError
from tests.engine.engine_lab import OTHER_ZONE, PROJECT, ZONE, EngineLab, one_zone_spec
from tests.engine.test_queued_tpu import ready

CREATE = "tpu.nodes.create"


def with_disks(*disks, **overrides):
    """Return a spec whose TPU has disks."""
    return one_zone_spec(**{"tpu__disks": list(disks), "vm": "none", **overrides})


def make(lab, *names, zone=ZONE):
    """Make disks behind everybody's back."""
    for name in names:
        lab.cloud.compute.disks.insert(zone, {"name": name, "sizeGb": "10"})


def disks(lab):
    """Return the names of the zone's disks with how many use each."""
    retained = lab.cloud.compute.disks
    return {disk.name: len(retained.users(disk)) for disk in retained.in_zone(ZONE)}


@pytest.mark.parametrize("request_", ["node", "queued"])
def test_up_attaches_the_disks_of_the_file_in_their_order(lab, request_):
    """By the full path in the TPU's zone, with the mode; the mode to read is the usual one."""
    make(lab, "text", "scratch")
    lab.up(with_disks("text", "scratch:read-write", tpu__request=request_))
    (node,) = lab.cloud.kernel.state.nodes.values()
    place = f"projects/{PROJECT}/zones/{ZONE}/disks"
    assert node.body["dataDisks"] == [
        {"sourceDisk": f"{place}/text", "mode": "READ_ONLY"},
        {"sourceDisk": f"{place}/scratch", "mode": "READ_WRITE"},
    ]


def test_down_leaves_the_disks(lab):
    """They are the user's."""
    make(lab, "text", "scratch")
    controller = lab.up(with_disks("text", "scratch:read-write"))
    assert disks(lab) == {"text": 1, "scratch": 1}
    assert controller.deletion().machines() == ()
    assert disks(lab) == {"text": 0, "scratch": 0}
    assert lab.cloud.calls["compute.disks.delete"] == 0


def test_a_disk_that_is_not_in_the_zone_is_refused_before_the_create(lab):
    """Nothing is paid for: the error names disk, zone and setting."""
    make(lab, "text", zone=OTHER_ZONE)
    with pytest.raises(TpuctlError) as caught:
        lab.up(with_disks("text"))
    assert f"TPU-124 there is no disk 'text' in {ZONE}" in caught.value.message
    assert "tpu.disks" in caught.value.hint
    assert lab.mutations()[CREATE] == 0


def test_the_next_tpu_waits_for_the_disk_that_the_lost_one_still_has(tmp_path):
    """A preempted TPU keeps what it may write until it is deleted: that is no reason to give up."""
    lab = EngineLab(tmp_path, latency="realistic")
    make(lab, "scratch")
    controller = lab.up(with_disks("scratch:read-write"))
    (lost,) = lab.nodes()
    lab.cloud.preempt(lost, notice=False)
    lab.wait(5)
    controller.run(ready(lab), passes=2000)
    controller.run(seconds=120)
    assert list(lab.nodes().values()) == [NodeState.READY]
    assert lost not in lab.nodes()
    assert disks(lab) == {"scratch": 1}


def test_a_disk_that_another_machine_writes_to_is_waited_for_and_named(lab):
    """Nothing of others is detached; the refusal says who has it."""
    make(lab, "scratch")
    path = f"projects/{PROJECT}/zones/{ZONE}/disks/scratch"
    body = {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite"}
    lab.cloud.tpu.create(ZONE, "other-tpu-g1", {**body, "dataDisks": [{"sourceDisk": path}]})
    lab.wait(60)
    controller = lab.controller(with_disks("scratch:read-write"))
    controller.want()
    controller.run(seconds=600, passes=500)
    assert list(lab.nodes()) == ["other-tpu-g1"]
    (refusal, *_) = controller.record.refusals
    assert refusal.code == "TPU-408"
    assert "other-tpu-g1" in refusal.message
    lab.cloud.tpu.delete(ZONE, "other-tpu-g1")
    controller.run(ready(lab), passes=500)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}


def test_a_login_that_may_not_look_at_disks_leaves_the_word_to_the_api(lab):
    """Unknown is not absent: the TPU is asked for, and the API refuses what cannot be."""
    lab.change(denied_permissions=frozenset({"compute.disks.get"}))
    make(lab, "text")
    lab.up(with_disks("text"))
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    other = with_disks("gone", name="other")
    with pytest.raises(TpuctlError) as caught:
        lab.controller(other, state="other").up()
    assert "TPU-124" in caught.value.message
