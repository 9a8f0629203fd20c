"""A secret that comes later needs machines with a wider scope: planned, and nothing is stopped before."""

import pytest

from orchestrator.config.load import load
from tests.kit.user import User

SECRETS = {"WANDB": "secret://wandb"}


def edited(user):
    """Give the job of a running deployment a secret."""
    user.edit(vm=user.file["vm"], job={**user.file["job"], "secrets": SECRETS})


def test_plan_shows_a_new_tpu_and_up_makes_it(cloud, user):
    """The reason stands beside the deletion, and afterwards nothing is left to change."""
    user.up()
    edited(user)
    found = user.run("plan", "--json").document["changes"]
    assert [(c["verb"], c["kind"]) for c in found][:2] == [("delete", "tpu"), ("create", "tpu")]
    assert "without the scope cloud-platform" in found[0]["message"]
    user.up()
    assert cloud.in_use() == ["demo-tpu-g2"]
    assert user.run("plan", "--detailed-exitcode").code == 0


def test_push_refuses_before_anything_is_stopped(cloud, user):
    """The job trains on with its settings, and `up` is named, which replaces the TPU."""
    user.up()
    cloud.wait(600)
    edited(user)
    before = cloud.mutations()
    for words in (["push", "--dry-run"], ["push"]):
        said = user.run(*words)
        assert (said.code, "TPU-252" in said.err, "`tpuctl up` replaces the TPU" in said.err) == (
            3,
            True,
            True,
        )
    assert cloud.mutations() == before
    assert set(cloud.machines.starts.values()) == {1}


def test_an_edited_file_alone_costs_no_running_job_its_tpu(cloud, user):
    """`watch` reads the file too; only what `up` has wanted replaces a machine."""
    user.up()
    edited(user)
    user.watch(600)
    assert cloud.in_use() == ["demo-tpu-g1"]


@pytest.fixture
def on_vm(cloud):
    """Give a computer whose job runs on a VM that was made without secrets, and which has one now."""
    user = User(cloud, vm={}, job__run_on="vm")
    user.up()
    edited(user)
    return user


def test_a_vm_is_not_replaced_and_the_job_on_it_not_stopped(cloud, on_vm):
    """Its disk may hold data: `plan` says what differs, `push` and `up` say how to have another one."""
    assert "made without the scope cloud-platform" in on_vm.run("plan").out.replace("\n", " ")
    for words in (["push"], ["up"]):
        said = on_vm.run(*words)
        assert (said.code, "TPU-252" in said.err, "`tpuctl down`, then `tpuctl up`" in said.err) == (
            3,
            True,
            True,
        )
    assert set(cloud.machines.starts.values()) == {1}
    said = on_vm.watch(600)
    assert "made without the scope cloud-platform" in said.err
    assert set(cloud.machines.starts.values()) == {1}


def test_a_vm_without_the_scope_of_the_loop_is_named_in_the_plan(cloud):
    """`watch --on-vm` would be refused there."""
    user = User(cloud, vm={})
    user.up()
    user.edit(vm={}, watch__on_vm=True)
    assert "which watch.on_vm needs" in user.run("plan").out.replace("\n", " ")
    assert load(user.folder / "tpuctl.yaml").watch.on_vm


def test_a_wait_for_workers_says_why(cloud, user):
    """What a machine reports stands on the line of the wait, and not in `status` alone."""
    user.up()
    cloud.machines.say("demo", phase="setup", message="TPU-251: secret wandb: the account may not read it")
    said = user.watch(300)
    assert "not running yet; worker 0: TPU-251: secret wandb" in said.err


def test_up_tells_each_phase_of_the_workers_once(cloud, user):
    """As `watch` does: between READY and the end of `up` one can see what is going on."""
    user.up()
    cloud.machines.say("demo", phase="setup", message="", step=3)
    cloud.later(30, lambda: cloud.machines.say("demo", phase="restore"))
    cloud.later(60, lambda: cloud.machines.say("demo", phase="run"))
    said = user.up()
    assert said.code == 0
    assert (said.err.count("setup runs, "), said.err.count("restoring the checkpoint, ")) == (1, 1)
    assert said.err.index("setup runs, ") < said.err.index("restoring the checkpoint, ")
    assert "TPU #1" in said.err
