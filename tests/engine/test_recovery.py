"""Bringing a deployment up, and back after each way of losing a machine."""

import pytest

from orchestrator.domain.observation import NodeState, Present
from orchestrator.errors import LocalCloudError
from tests.engine.engine_lab import OTHER_ZONE, ZONE, EngineLab, one_zone_spec

READY = {"demo-tpu-g2": NodeState.READY}


def test_up_converges_from_nothing_and_a_second_run_changes_nothing(lab):
    """One bucket, one VM, one node; the machine boots with the code, so nothing is pushed either."""
    lab.up()
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.mutations() == {
        "tpu.nodes.create": 1,
        "compute.instances.insert": 1,
        "storage.buckets.insert": 1,
        "storage.buckets.setIamPolicy": 1,
    }
    assert lab.remote.pushes == []
    before = lab.mutations()
    again = lab.up()
    assert lab.mutations() == before
    assert lab.remote.pushes == []
    assert again.events == []


def test_bucket_vm_and_tpu_are_asked_for_at_the_same_time(tmp_path):
    """With the latencies of the real cloud `up` takes as long as the slowest resource, within a poll."""
    lab = EngineLab(tmp_path, latency="realistic")
    start = lab.clock.now()
    up = lab.up()
    assert lab.clock.now() - start <= 180 + 15
    created = [e.at for e in up.events if e.kind in {"bucket-create", "vm-create", "tpu-create"}]
    assert created == [start] * 3


def test_a_running_deployment_is_not_changed_for_a_day(lab):
    """24 virtual hours of looks once an hour make no mutating call (I4)."""
    controller = lab.up()
    before = lab.mutations()
    for _ in range(24):
        lab.wait(3600)
        assert controller.one_pass().plan.empty
    assert lab.mutations() == before


@pytest.mark.parametrize("latency", ["scaled", "realistic"])
def test_a_preempted_node_is_deleted_and_the_next_one_asked_for_in_the_same_pass(tmp_path, latency):
    """Incarnation + 1 under a new name; in the end the old node is gone and the job runs on the new one."""
    lab = EngineLab(tmp_path, latency=latency)
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    first = controller.one_pass()
    assert [(c.kind.value, c.verb.name, c.incarnation) for c in first.plan.changes] == [
        ("node", "DELETE", 1),
        ("node", "CREATE", 2),
    ]
    controller.up()
    lab.wait(60)
    assert lab.nodes() == READY
    assert controller.record.node.preemptions == 1
    assert [m for m in lab.machines.running if "-g2-" in m]
    assert lab.remote.pushes == [], "the way back needs no SSH"


def test_a_vanished_node_is_replaced_only_after_two_looks_half_a_minute_apart(lab):
    """One complete list without the node is not believed; the second one, 30 s later, is."""
    controller = lab.up()
    lab.cloud.set_node_state("demo-tpu-g1", "vanish")
    lost = lab.clock.now()
    assert controller.one_pass().plan.empty
    lab.clock.advance(29)
    assert controller.one_pass().plan.empty
    controller.up()
    created = [e.at for e in controller.events if e.kind == "tpu-create"]
    assert 30 <= created[-1] - lost <= 30 + 15
    assert lab.nodes() == READY


@pytest.mark.parametrize("state", ["UNHEALTHY_MAINTENANCE", "UNHEALTHY_TENSORFLOW", "TIMEOUT", "REPAIRING"])
def test_a_node_whose_workers_report_is_not_replaced_whatever_the_api_says(lab, state):
    """Slices train on through maintenance notices: an hour of them costs nothing."""
    controller = lab.up()
    before = lab.mutations()
    lab.cloud.set_node_state("demo-tpu-g1", state)
    controller.run(seconds=3600)
    assert lab.mutations() == before


def test_a_silent_node_under_maintenance_is_replaced(lab):
    """READY, UNHEALTHY_MAINTENANCE and silent for eight minutes means a new node; the old one is deleted."""
    controller = lab.up()
    lab.machines.running.clear()
    lab.cloud.set_node_state("demo-tpu-g1", "UNHEALTHY_MAINTENANCE")
    assert controller.one_pass().plan.empty
    lost = lab.clock.now()
    controller.run(lambda _: lab.nodes() == READY, seconds=1200)
    assert lab.nodes() == READY
    assert 480 <= lab.clock.now() - lost <= 720


def test_a_repair_that_heals_costs_nothing(lab):
    """REPAIRING that becomes READY again within the deadline leads to no change."""
    controller = lab.up()
    before = lab.mutations()
    lab.cloud.set_node_state("demo-tpu-g1", "REPAIRING")
    controller.run(seconds=200)
    lab.cloud.set_node_state("demo-tpu-g1", "READY")
    controller.up()
    assert lab.mutations() == before


def test_a_repair_without_end_is_given_up(lab):
    """REPAIRING for five minutes means a new node."""
    controller = lab.up()
    lab.machines.running.clear()
    lab.cloud.set_node_state("demo-tpu-g1", "REPAIRING")
    controller.run(lambda _: lab.nodes() == READY, seconds=1200)
    assert lab.nodes() == READY


def test_a_preemptible_node_that_ends_after_24_hours_is_replaced(lab):
    """TERMINATED is an end of the API's own, so it needs no second look."""
    controller = lab.up()
    lab.cloud.set_node_state("demo-tpu-g1", "TERMINATED")
    controller.up()
    lab.wait(10)
    assert lab.nodes() == READY


def test_a_node_deleted_by_hand_is_replaced(lab):
    """Somebody else's delete is a preemption like any other."""
    controller = lab.up()
    controller.cloud.nodes.delete("demo-tpu-g1", one_zone_spec().tpu.zones[0])
    controller.up()
    lab.wait(10)
    assert lab.nodes() == READY


def test_preemption_after_preemption_keeps_one_node(lab):
    """Ten preemptions in a row leave one node, of incarnation 11, and ten counted preemptions."""
    controller = lab.up()
    for number in range(1, 11):
        lab.cloud.preempt(f"demo-tpu-g{number}", notice=number % 2 == 0)
        lab.wait(3)
        controller.up()
    lab.wait(10)
    assert lab.nodes() == {"demo-tpu-g11": NodeState.READY}
    assert controller.record.node.preemptions == 10


def test_a_node_preempted_while_it_is_created_is_replaced(lab):
    """The create's operation fails; the node is deleted and the next one asked for."""
    controller = lab.controller()
    controller.want()
    controller.one_pass()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    lab.wait(10)
    assert lab.nodes() == READY


@pytest.mark.parametrize("how", ["stopped", "preempted"])
def test_a_vm_that_stopped_is_started_and_keeps_its_disk(lab, how):
    """The VM is started, never created again."""
    spec = one_zone_spec(vm__spot=how == "preempted")
    controller = lab.up(spec)
    if how == "stopped":
        controller.cloud.vms.stop("demo-vm", one_zone_spec().tpu.zones[0])
    else:
        lab.cloud.preempt("demo-vm", notice=False)
    lab.clock.advance(2)
    controller.up()
    lab.clock.advance(2)
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.mutations()["compute.instances.start"] == 1
    assert lab.mutations()["compute.instances.insert"] == 1


def test_a_vm_deleted_by_hand_is_created_again(lab):
    """Its absence counts after a second look."""
    controller = lab.up()
    controller.cloud.vms.delete("demo-vm", one_zone_spec().tpu.zones[0])
    lab.clock.advance(2)
    assert controller.one_pass().plan.empty
    controller.up()
    assert lab.vms() == {"demo-vm": "RUNNING"}


def test_a_dead_worker_machine_is_looked_after_over_ssh(lab):
    """The node stays READY while a worker is dead: it falls silent, and the loop goes there by SSH."""
    controller = lab.up()
    lab.cloud.kill_worker("demo-tpu-g1", 0)
    controller.run(lambda r: bool(r.plan.changes), passes=40)
    assert lab.remote.pushes == [["demo-tpu-g1-w0"]]


@pytest.mark.parametrize("poll", ["15s", "90s", "300s"])
def test_a_node_out_of_reach_for_five_minutes_is_replaced(lab, poll):
    """READY, silent and not reachable by SSH: that is a preemption too, however seldom one looks."""
    controller = lab.up(one_zone_spec(watch__poll=poll))
    lab.cloud.kill_worker("demo-tpu-g1", 0)
    lab.remote.error = "no route to host"
    controller.run(lambda r: controller.record.node.incarnation == 2, passes=200)
    lab.remote.error = ""
    controller.up()
    lab.wait(10)
    assert lab.nodes() == READY


def test_every_worker_of_a_slice_gets_the_code(lab):
    """A slice of four hosts whose machines came up without the job is pushed to as a whole."""
    lab.machines.silent = True
    lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    assert lab.remote.pushes == [[f"demo-tpu-g1-w{index}" for index in range(4)]]
    assert len(lab.machines.running) == 4


def test_what_was_asked_for_carries_labels_key_and_account(lab):
    """Node and VM can be found by label and open only to the deployment's key."""
    controller = lab.up()
    nodes = controller.cloud.nodes.labelled("tpuctl-deployment", "demo", one_zone_spec().tpu.zones)
    assert isinstance(nodes, Present)
    assert nodes.value[0].labels["tpuctl-incarnation"] == "1"
    for machine in lab.cloud.machines():
        assert machine.attributes["ssh-keys"] == controller.blueprint.public_key
        assert machine.service_account == controller.blueprint.service_account


def test_only_spot_machines_are_preempted_here(lab):
    """The lab refuses to preempt what cannot be, so that no test above proves nothing."""
    lab.up()
    with pytest.raises(LocalCloudError):
        lab.cloud.preempt("demo-vm", notice=False)


def test_a_vm_whose_create_had_no_answer_is_found_where_an_earlier_file_wanted_it(lab):
    """Killed right after it was asked for; the file names other zones by now. A second one would be billed too."""
    killed = lab.controller(one_zone_spec(tpu__zones=[OTHER_ZONE]))
    killed.want()
    killed.one_pass()
    lab.up(one_zone_spec(tpu__zones=[ZONE]))
    assert lab.mutations()["compute.instances.insert"] == 1
