"""VMs that the platform stops: preemption, run time, maintenance."""

import pytest

from tests.emulator.emulator_lab import SPOT_VM, VMS, a_lab, vm_body

OPERATIONS = VMS.replace("instances", "operations")
DAY = 24 * 3600


def verbs(lab):
    """Return what the machines were asked for."""
    return [call for call, _ in lab.machines.calls]


def preemptions(lab):
    """Return the operations that record preemptions."""
    query = "filter=operationType%3D%22compute.instances.preempted%22"
    return lab.ok("GET", f"{OPERATIONS}?{query}")["items"]


def test_a_spot_vm_is_completed_as_compute_engine_does():
    """preemptible, no restart, TERMINATE and action STOP are filled in."""
    scheduling = a_lab().vm(**SPOT_VM)["scheduling"]
    assert scheduling == {
        "provisioningModel": "SPOT",
        "preemptible": True,
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
        "instanceTerminationAction": "STOP",
    }


def test_a_preempted_vm_stops_after_its_notice_and_keeps_its_disk():
    """STOPPING, then TERMINATED; an operation of the user "system" says why."""
    lab = a_lab()
    vm = lab.vm(**SPOT_VM)
    (machine,) = lab.cloud.machines()
    lab.cloud.preempt("v1")
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "STOPPING"
    assert lab.cloud.machine_state(machine.id).preempted
    lab.after(2)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"
    assert not lab.cloud.machine_state(machine.id).running
    assert verbs(lab) == ["boot", "notice", "stop"]
    (record,) = preemptions(lab)
    assert (record["user"], record["status"], record["targetId"]) == ("system", "DONE", vm["id"])
    lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1)
    assert not lab.cloud.machine_state(machine.id).preempted


def test_a_spot_vm_with_the_action_delete_is_gone():
    """The VM and its disk disappear; the record of the preemption stays."""
    lab = a_lab()
    lab.vm(scheduling={"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"})
    lab.cloud.preempt("v1", notice=False)
    assert lab.call("GET", f"{VMS}/v1")[0] == 404
    assert verbs(lab) == ["boot", "remove"]
    assert len(preemptions(lab)) == 1


def test_a_vm_preempted_while_it_starts_fails_its_insert():
    """UNSUPPORTED_OPERATION inside the insert operation; no machine boots."""
    lab = a_lab()
    started = lab.ok("POST", VMS, vm_body(**SPOT_VM))
    lab.cloud.preempt("v1")
    lab.after(5)
    error = lab.operation(started)["error"]["errors"][0]
    assert error["code"] == "UNSUPPORTED_OPERATION"
    assert error["message"] == "Instance failed to start due to preemption."
    assert "boot" not in verbs(lab)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"


@pytest.mark.parametrize(("action", "remaining"), [("STOP", "TERMINATED"), ("DELETE", None)])
def test_the_run_time_limit_ends_any_vm(action, remaining):
    """MaxRunDuration acts on the clock, also for standard VMs."""
    lab = a_lab()
    limit = {"maxRunDuration": {"seconds": "3600"}, "instanceTerminationAction": action}
    vm = lab.vm(scheduling=limit)
    assert vm["resourceStatus"]["scheduling"]["terminationTimestamp"]
    lab.after(3599)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "RUNNING"
    lab.after(10)
    status, answer = lab.call("GET", f"{VMS}/v1")
    assert (answer["status"] if status == 200 else None) == remaining


def test_the_run_time_begins_at_0_with_each_start():
    """The limit of the first run does not stop the second."""
    lab = a_lab()
    lab.vm(scheduling={"maxRunDuration": {"seconds": "3600"}})
    lab.after(3000)
    lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(1)
    lab.ok("POST", f"{VMS}/v1/start")
    lab.after(1000)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "RUNNING"
    lab.after(2700)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"


def test_the_limit_can_be_changed_while_the_vm_runs():
    """SetScheduling replaces the limit that insert gave."""
    lab = a_lab()
    lab.vm(scheduling={"maxRunDuration": {"seconds": "100"}})
    lab.ok("POST", f"{VMS}/v1/setScheduling", {"maxRunDuration": {"seconds": "1000"}})
    lab.after(500)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "RUNNING"
    lab.after(510)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"


def test_new_scheduling_keeps_a_spot_vm_spot():
    """A body without a model changes the limit only; a stopped VM gets no end before its next start."""
    lab = a_lab()
    lab.vm(**SPOT_VM)
    lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(1)
    lab.ok("POST", f"{VMS}/v1/setScheduling", {"maxRunDuration": {"seconds": "60"}})
    vm = lab.ok("GET", f"{VMS}/v1")
    assert (vm["scheduling"]["provisioningModel"], vm["scheduling"]["preemptible"]) == ("SPOT", True)
    assert "resourceStatus" not in vm
    lab.ok("POST", f"{VMS}/v1/start")
    lab.after(62)
    lab.after(2)
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"


def test_legacy_preemptible_vms_end_after_a_day():
    """The 24 hour limit belongs to `preemptible`, not to SPOT."""
    lab = a_lab()
    lab.vm("old", scheduling={"preemptible": True})
    lab.vm("new", **SPOT_VM)
    lab.after(DAY)
    lab.after(5)
    assert lab.ok("GET", f"{VMS}/old")["status"] == "TERMINATED"
    assert lab.ok("GET", f"{VMS}/new")["status"] == "RUNNING"


def test_a_simulated_maintenance_preempts_spot_and_only_shows_on_standard():
    """A standard VM shows the event for the notice window and runs on."""
    lab = a_lab()
    lab.vm("spot", **SPOT_VM)
    lab.vm("standard")
    standard = next(m for m in lab.cloud.machines() if m.name == "standard")
    asked = [lab.ok("POST", f"{VMS}/{name}/simulateMaintenanceEvent") for name in ("spot", "standard")]
    assert lab.cloud.machine_state(standard.id).maintenance_event == "MIGRATE_ON_HOST_MAINTENANCE"
    lab.after(2)
    assert lab.cloud.machine_state(standard.id).maintenance_event == "NONE"
    assert lab.ok("GET", f"{VMS}/spot")["status"] == "TERMINATED"
    assert lab.ok("GET", f"{VMS}/standard")["status"] == "RUNNING"
    ends = [lab.operation(one) for one in asked]
    assert [(end["status"], "error" in end) for end in ends] == [("DONE", False)] * 2


def test_a_vm_stopped_during_its_notice_is_not_started_again_by_it():
    """The caller's stop and the preemption end in one TERMINATED VM and two ended operations."""
    lab = a_lab()
    lab.vm(**SPOT_VM)
    lab.cloud.preempt("v1")
    stopped = lab.ok("POST", f"{VMS}/v1/stop")
    lab.after(5)
    assert lab.operation(stopped)["status"] == "DONE"
    assert preemptions(lab)[0]["status"] == "DONE"
    assert lab.ok("GET", f"{VMS}/v1")["status"] == "TERMINATED"
