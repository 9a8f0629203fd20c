"""The self-test may be killed at any call: it leaks nothing, and the next one takes down what is left."""

import pytest

from tests.kit.user import User

WORDS = ("selftest", "--yes", "--project", "local-project", "--zone", "europe-west4-b", "--ttl", "30")
KILLS = [
    ("storage.buckets.insert", "after"), ("compute.instances.insert", "after"), ("tpu.nodes.create", "after"),
    ("tpu.queuedResources.create", "after"), ("storage.buckets.delete", "before"),
]  # fmt: skip


def stages(said):
    """Return how each stage ended, from the lines that the command prints."""
    lines = [line.split() for line in said.err.splitlines() if line.startswith("  ") and " s  " in line]
    return {line[1]: line[0] for line in lines}


def ends(cloud):
    """Let the job end once it runs other code than at first: that is what the push brings."""
    report, first = cloud.machines.report, []

    def reported():
        report()
        for worker in list(cloud.machines.workers.values()):
            if not worker.running:
                continue
            first.append(worker.env["TPUCTL_BUNDLE"])
            saved, other = "committed_step" in worker.said, worker.env["TPUCTL_BUNDLE"] != first[0]
            if saved and other and worker.said.get("phase") != "done":
                worker.said["phase"] = "done"
                worker.reported = float("-inf")

    cloud.machines.report = reported


def all_deleted(cloud):
    """Return whether no machine, no bucket and nothing in the queue is there, and no folder of a self-test."""
    cloud.model.tick()
    retained = list((cloud.users[0].state / "gcp" / "selftest").glob("*"))
    return (cloud.nodes(), cloud.vms(), cloud.buckets(), retained) == ({}, {}, [], [])


def test_a_self_test_runs_the_product_and_leaves_nothing(cloud):
    """The machines of this cloud end no job, so the time to live ends it; all else works."""
    said = User(cloud).type(*WORDS)
    found = stages(said)
    assert {
        name: found[name] for name in ("vm", "bucket", "refusals", "tpu", "lost", "down")
    } == dict.fromkeys(("vm", "bucket", "refusals", "tpu", "lost", "down"), "ok"), said.err
    assert said.code == 1
    assert all_deleted(cloud)


def test_without_tpu_no_tpu_is_asked_for(cloud):
    """People without quota run bucket and VM only."""
    said = User(cloud).type(*WORDS, "--no-tpu")
    assert stages(said)["vm-facts"] == "ok"
    assert {call.status for call in cloud.log if call.method == "tpu.nodes.create"} == {400}
    assert all_deleted(cloud)


@pytest.mark.parametrize(("call", "when"), KILLS)
def test_killed_at_a_call_the_next_self_test_deletes_the_leftovers(cloud, call, when):
    """It is found by its folder, whatever the killed one had written to the bucket."""
    ends(cloud)
    user = User(cloud)
    killed = user.type(*WORDS, kill=(call, when))
    assert killed.code is None, f"{call} was never called:\n{killed.err}"
    user.type(*WORDS, "--no-tpu")
    assert all_deleted(cloud)


def test_killed_and_forgotten_the_next_command_of_anybody_ends_it(cloud):
    """When its time to live is over, `up` of another deployment takes its machines away."""
    user = User(cloud)
    assert user.type(*WORDS, kill=("tpu.nodes.create", "after")).code is None
    cloud.wait(3600)
    user.up()
    cloud.wait(1200)
    assert all(name.startswith("demo") for name in cloud.in_use())
    user.type(*WORDS, "--no-tpu")


def test_ctrl_c_deletes_everything_first(cloud):
    """Status 130, and nothing is left."""
    said = User(cloud).type(*WORDS, interrupt=200)
    assert said.code == 130
    assert all_deleted(cloud)


def test_what_cannot_be_deleted_is_named(cloud):
    """Status 5, and the next one deletes it first."""
    user = User(cloud)
    cloud.change(denied_permissions=frozenset({"compute.instances.delete"}))
    said = user.type(*WORDS, "--no-tpu")
    assert (said.code, "not proven gone: VM" in said.err) == (5, True)
    cloud.change(denied_permissions=frozenset())
    user.type(*WORDS, "--no-tpu")
    assert all_deleted(cloud)


def test_without_a_yes_nothing_is_created(cloud):
    """Nobody is at a terminal: the question cannot be asked, so the answer is no."""
    said = User(cloud).type(*[word for word in WORDS if word != "--yes"])
    assert (said.code, cloud.mutations()) == (2, [])


def test_a_budget_that_is_too_small_creates_nothing(cloud):
    """It says so before it asks."""
    said = User(cloud).type(*WORDS, "--budget", "0.05")
    assert (said.code, cloud.mutations()) == (2, [])
    assert "cannot be kept" in said.err
