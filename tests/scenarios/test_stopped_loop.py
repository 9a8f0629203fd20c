"""What `watch --on-vm --stop` says: at once what it does, and then what becomes of the job."""

import pytest

from orchestrator.contract.service_state import ServiceState
from orchestrator.engine.loop import loop_on_vm
from orchestrator.errors import RemoteError
from tests.kit.user import FleetOwner, User

NONE_RUNS = "no loop runs on demo-vm any more; "


@pytest.fixture(autouse=True)
def loop(monkeypatch):
    """Put a loop on the VM; give what it has been asked."""
    asked = []
    runs = loop_on_vm.LoopState("digest", True, ServiceState())
    monkeypatch.setattr(loop_on_vm, "observe", lambda *_: asked.append("observe") or runs)
    monkeypatch.setattr(loop_on_vm, "stop", lambda *_: asked.append("stop"))
    return asked


def stopped(user):
    """Stop the loop; return what is said then."""
    return user.run("watch", "--on-vm", "--stop").err


def test_a_job_that_runs_continues_and_its_tpu_is_not_replaced(cloud, loop):
    """The first line comes before anything is asked."""
    user = User(cloud, vm={}, watch__on_vm=True)
    user.up()
    cloud.wait(900)
    said = stopped(user)
    assert said.startswith("stopping the loop on demo-vm; a pass that is under way ends first\n")
    assert loop == ["observe", "stop"]
    assert f"{NONE_RUNS}the job continues; a preempted TPU is not replaced until a watch runs" in said
    assert user.run("watch", "--on-vm", "--stop", "--json").document["state"] == "running"


def test_a_job_whose_tpu_is_gone_does_not_continue(cloud):
    """As right after a preemption: the loop would have requested the next TPU."""
    user = User(cloud, vm={}, watch__on_vm=True)
    user.up()
    cloud.machines.say("demo", phase="setup")
    assert f"{NONE_RUNS}the job starts when its machine is ready; " in stopped(user)
    cloud.wait(900)
    cloud.model.preempt("demo-tpu-g1", notice=False)
    cloud.wait(60)
    assert f"{NONE_RUNS}no TPU trains now, and none is requested until a watch runs" in stopped(user)


def test_a_loop_is_stopped_also_where_the_job_cannot_be_observed(cloud, monkeypatch):
    """The observation comes after the stop."""
    user = User(cloud, vm={}, watch__on_vm=True)
    user.up()
    fails = "orchestrator.app.loop.on_vm.observe_now"
    monkeypatch.setattr(fails, lambda _: (_ for _ in ()).throw(RemoteError("no answer")))
    assert f"{NONE_RUNS}whether the job runs is not known: see `tpuctl status`" in stopped(user)


def test_the_tasks_of_a_fleet_continue(cloud):
    """Its nodes are deployments of their own."""
    owner = FleetOwner(cloud, watch__on_vm=True)
    owner.up("--yes")
    assert f"{NONE_RUNS}the tasks continue" in stopped(owner)
