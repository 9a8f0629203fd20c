"""The self-test may be killed at any call: it leaks nothing, and the next one takes down what is left."""

import pytest

from tests.scenarios.desk import Desk

WORDS = ("selftest", "--yes", "--project", "local-project", "--zone", "europe-west4-b", "--limit", "30")
KILLS = [
    ("storage.buckets.insert", "after"), ("compute.instances.insert", "after"), ("tpu.nodes.create", "after"),
    ("tpu.queuedResources.create", "after"), ("storage.buckets.delete", "before"),
]  # fmt: skip


def steps(said):
    """Return how each step ended, from the lines that the command prints."""
    lines = [line.split() for line in said.err.splitlines() if line.startswith("  ") and " s  " in line]
    return {line[1]: line[0] for line in lines}


def ends(town):
    """Let the job end once it runs other code than at first: that is what the push brings."""
    report, first = town.crew.report, []

    def reported():
        report()
        for worker in list(town.crew.workers.values()):
            if not worker.running:
                continue
            first.append(worker.env["TPUCTL_BUNDLE"])
            saved, other = "committed_step" in worker.said, worker.env["TPUCTL_BUNDLE"] != first[0]
            if saved and other and worker.said.get("phase") != "done":
                worker.said["phase"] = "done"
                worker.reported = float("-inf")

    town.crew.report = reported


def nothing_left(town):
    """Say whether no machine, no bucket and nothing in the queue is there, and no folder of a self-test."""
    town.cloud.tick()
    kept = list((town.desks[0].state / "gcp" / "selftest").glob("*"))
    return (town.nodes(), town.vms(), town.buckets(), kept) == ({}, {}, [], [])


def test_a_self_test_runs_the_product_and_leaves_nothing(town):
    """The machines of this town end no job, so the time to live ends it; all else works."""
    said = Desk(town).type(*WORDS)
    found = steps(said)
    assert {
        name: found[name] for name in ("vm", "bucket", "refusals", "tpu", "lost", "down")
    } == dict.fromkeys(("vm", "bucket", "refusals", "tpu", "lost", "down"), "ok"), said.err
    assert said.code == 1
    assert nothing_left(town)


def test_without_tpu_no_tpu_is_asked_for(town):
    """People without quota run bucket and VM only."""
    said = Desk(town).type(*WORDS, "--no-tpu")
    assert steps(said)["vm-probe"] == "ok"
    assert {call.status for call in town.log if call.method == "tpu.nodes.create"} == {400}
    assert nothing_left(town)


@pytest.mark.parametrize(("call", "when"), KILLS)
def test_killed_at_a_call_the_next_self_test_deletes_what_is_left(town, call, when):
    """It is found by its folder, whatever the killed one had told the bucket."""
    ends(town)
    desk = Desk(town)
    killed = desk.type(*WORDS, kill=(call, when))
    assert killed.code is None, f"{call} was never called:\n{killed.err}"
    desk.type(*WORDS, "--no-tpu")
    assert nothing_left(town)


def test_killed_and_forgotten_the_next_command_of_anybody_ends_it(town):
    """When its time to live is over, `up` of another deployment takes its machines away."""
    desk = Desk(town)
    assert desk.type(*WORDS, kill=("tpu.nodes.create", "after")).code is None
    town.wait(3600)
    desk.up()
    town.wait(1200)
    assert all(name.startswith("demo") for name in town.in_use())
    desk.type(*WORDS, "--no-tpu")


def test_ctrl_c_deletes_everything_first(town):
    """Status 130, and nothing is left."""
    said = Desk(town).type(*WORDS, interrupt=200)
    assert said.code == 130
    assert nothing_left(town)


def test_what_cannot_be_deleted_is_named(town):
    """Status 5, and the next one deletes it first."""
    desk = Desk(town)
    town.change(denied_permissions=frozenset({"compute.instances.delete"}))
    said = desk.type(*WORDS, "--no-tpu")
    assert (said.code, "not proven gone: VM" in said.err) == (5, True)
    town.change(denied_permissions=frozenset())
    desk.type(*WORDS, "--no-tpu")
    assert nothing_left(town)


def test_without_a_yes_nothing_is_created(town):
    """Nobody is at a terminal: the question cannot be asked, so the answer is no."""
    said = Desk(town).type(*[word for word in WORDS if word != "--yes"])
    assert (said.code, town.mutations()) == (2, [])


def test_a_budget_that_is_too_small_creates_nothing(town):
    """It says so before it asks."""
    said = Desk(town).type(*WORDS, "--budget", "0.05")
    assert (said.code, town.mutations()) == (2, [])
    assert "cannot be kept" in said.err
