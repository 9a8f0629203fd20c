"""What the cloud and its machines do to a deployment: lost answers, odd states, deletions that hang."""

import json
from dataclasses import replace

import pytest

from tests.kit.machines import CloudSsh
from tests.kit.user import User

G1, G2 = "demo-tpu-g1", "demo-tpu-g2"


def edited(response, change):
    """Return a JSON response with its body changed."""
    body = json.loads(response.body)
    change(body)
    return replace(response, body=json.dumps(body).encode())


@pytest.mark.parametrize("observed", [True, False])
def test_s01_a_create_whose_answer_is_lost_makes_one_node(cloud, user, observed):
    """The API has no request id. What a list shows is adopted; else the name is asked for again, and met."""
    cloud.model.fail_next("tpu.nodes.create", ["drop-answer"])

    def late(method, response):
        hidden = method == "tpu.nodes.list" and len(cloud.asked("tpu.nodes.create")) < 2
        return edited(response, lambda body: body.pop("nodes", None)) if hidden and not observed else response

    cloud.distort = late
    user.up()
    assert len(cloud.asked("tpu.nodes.create")) == (1 if observed else 2)
    assert [call.status for call in cloud.log if call.method == "tpu.nodes.create"][1:] == [409] * (
        not observed
    )
    assert cloud.nodes() == {G1: "READY"}
    assert sum(cloud.machines.starts.values()) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_s02_a_kill_between_create_and_record_loses_no_node(cloud, user, when):
    """Names and labels show what was created, also to another computer with nothing but the file."""
    assert user.run("up", kill=("tpu.nodes.create", when)).code is None
    cloud.wait(120)
    made = [G1] if when == "after" else []
    assert list(cloud.nodes()) == made
    User(cloud, "elsewhere").up()
    assert cloud.nodes() == {G1: "READY"}


def test_s03_of_two_nodes_of_one_job_only_the_newest_writes(cloud, user):
    """
    The old node comes back to number after its replacement: it saves nothing more, and it is deleted.

    It had fallen silent and was in repair.
    """
    user.up()

    def lose():
        cloud.model.set_node_state(G1, "REPAIRING")
        cloud.machines.reports_nothing = lambda worker: worker.incarnation == 1

    cloud.later(30, lose)
    cloud.model.fail_next("tpu.nodes.delete", ["transient"] * 6)
    together = []

    def heal():
        if G2 not in cloud.nodes():
            cloud.later(10, heal)
            return
        cloud.model.set_node_state(G1, "READY")
        cloud.machines.reports_nothing = lambda worker: False
        together.extend(cloud.in_use())

    cloud.later(100, heal)
    user.watch(1800)
    assert together == [G1, G2], "the two never stood side by side"
    assert list(cloud.nodes()) == [G2]
    saved = sorted((step, number) for step, number in cloud.machines.complete(cloud.buckets()[0]))
    numbers = [number for _, number in saved]
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 2}


STATES = ("STOPPED", "TERMINATED", "REPAIRING", "HIDDEN", "vanish", "UNHEALTHY_MAINTENANCE", "dead SSH")


@pytest.mark.parametrize("state", STATES)
def test_s04_a_lost_node_is_replaced_although_it_never_says_preempted(cloud, user, state):
    """Whatever a lost machine looks like, its job runs on a new one within half an hour."""
    user.up()

    def lose():
        for machine in list(cloud.machines.workers):
            if G1 in machine:
                cloud.machines.stop(machine)
        if state != "dead SSH":
            cloud.model.set_node_state(G1, state)

    cloud.later(60, lose)
    user.watch(1800)
    assert cloud.nodes() == {G2: "READY"}
    assert [w.running for w in cloud.machines.workers.values() if G2 in w.id] == [True]


def test_s05_ssh_that_fails_again_and_again_recreates_nothing(cloud, user, monkeypatch):
    """A firewall keeps us out, the job reports all the same: no node is replaced, and never are there two."""
    monkeypatch.setattr(CloudSsh, "broken", staticmethod(lambda machine: "connection timed out"))
    user.up()
    user.write("train.py", "print('new code')\n")
    said = user.run("up", interrupt=1800)
    assert said.code == 130
    assert "connection timed out" in said.err
    assert cloud.nodes() == {G1: "READY"}
    assert len(cloud.asked("tpu.nodes.create")) == 1
    assert cloud.checks.most_in_use["demo"] == 1


def test_s08_an_operation_that_is_done_too_early_proves_nothing(cloud, user):
    """`up` waits for READY and `down` for an empty list, whatever the operations say."""

    def hasty(method, response):
        done = {"done": True, "response": {}}
        return edited(response, lambda body: body.update(done)) if "operations.get" in method else response

    cloud.distort = hasty
    user.up()
    assert cloud.nodes() == {G1: "READY"}
    assert sum(cloud.machines.starts.values()) == 1
    assert len(cloud.asked("tpu.nodes.create")) == 1
    user.down()
    assert cloud.nodes() == {}


def test_s09_a_deletion_that_never_ends_is_asked_for_again(cloud, user):
    """The next node does not wait for it. `down` never says that all is gone; it names what is left."""
    user.up()
    cloud.model.fail_next("tpu.nodes.delete", ["stuck"])
    cloud.model.preempt(G1, notice=False)
    user.watch(1800)
    first, *again = cloud.asked("tpu.nodes.delete")
    assert 600 <= again[0] - first <= 660
    assert cloud.nodes() == {G1: "DELETING", G2: "READY"}
    said = user.run("down", "--yes")
    assert (said.code, "left: TPU demo-tpu-g1 europe-west4-b (DELETING)" in said.err) == (5, True)
    cloud.model.set_node_state(G1, "vanish")
    user.down()


def test_s10_a_slow_deletion_blocks_nothing(cloud, user):
    """It takes three quarters of an hour; the next node is asked for in the same look, and looks go on."""
    user.up()
    cloud.model.fail_next("tpu.nodes.delete", ["latency:2700"])
    cloud.model.preempt(G1, notice=False)
    said = user.watch(1200)
    (asked, *_), (_, created) = cloud.asked("tpu.nodes.delete"), cloud.asked("tpu.nodes.create")
    assert created - asked < 1
    assert cloud.nodes() == {G1: "DELETING", G2: "READY"}
    assert said.err.count("job runs, step") >= 3, "a line every five minutes"
    cloud.wait(1800)


def test_s23_a_node_without_workers_is_not_ready(cloud, user):
    """READY with an empty list of machines: `up` goes on waiting, and nothing is pushed to nobody."""
    hidden = []

    def forget(body):
        hidden.extend(node.pop("networkEndpoints", None) for node in body.get("nodes", []))

    def empty(method, response):
        early = method == "tpu.nodes.list" and cloud.clock.monotonic() < 600
        return edited(response, forget) if early else response

    cloud.distort = empty
    said = user.up()
    assert any(hidden), "there was nothing to hide"
    assert "shows no workers yet" in said.err
    assert cloud.clock.monotonic() >= 600
    assert len(cloud.asked("tpu.nodes.create")) == 1


@pytest.mark.parametrize("how", ["unreachable", "transient", "drop-answer"])
def test_s25_what_a_list_does_not_show_is_not_gone(cloud, user, how):
    """A page fails or is cut short for half an hour: nothing is made, nothing deleted. Then all is as it was."""
    user.up()
    before = cloud.mutations()
    cloud.model.fail_next("tpu.nodes.list", [how] * 100)
    user.watch(1800)
    assert 60 <= len(cloud.model.unused_faults()) <= 80, "looks were not answered as they should"
    cloud.model.kernel.state.faults.clear()
    user.watch(300)
    assert cloud.mutations() == before
    assert cloud.nodes() == {G1: "READY"}
