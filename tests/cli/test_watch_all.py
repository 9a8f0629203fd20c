"""`tpuctl watch --all` keeps all deployments of this computer alive in one process."""

import pytest

from orchestrator.engine.loop.many_loops import TICK
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.planning.steady import MAX_STEADY
from tests.kit.user import User

POLL = 15.0


@pytest.fixture
def user(elsewhere):
    """Give a user whose deployments are looked at every 15 s."""
    return elsewhere(watch__poll="15s")


def watch_all(user, seconds, *words):
    """Type the command and press Ctrl-C after some time."""
    return user.type("watch", "--all", *words, interrupt=seconds)


def test_each_lost_tpu_is_replaced_at_the_next_poll(cloud, user):
    """The list that all share shows it, and the events say whose it was."""
    preemptions = [(200 + 211 * number, ("demo", "other")[number % 2]) for number in range(6)]
    for at, name in preemptions:
        cloud.later(at, lambda name=name: cloud.model.preempt(cloud.in_use(name)[0], notice=False))
    began = cloud.clock.monotonic()
    said = watch_all(user, 1500)
    assert said.code == 130
    assert sorted(cloud.in_use()) == ["demo-tpu-g4", "other-tpu-g4"]
    asked = [at - began for at in cloud.asked("tpu.nodes.create")[-6:]]
    late = [round(create - preempted) for create, (preempted, _) in zip(asked, preemptions, strict=True)]
    # The events of this cloud come in strides of ten seconds.
    assert max(late) <= 10 + POLL + 2 * TICK, late
    assert "watching 2: demo, other" in said.err
    assert "demo: TPU demo-tpu-g1" in said.err
    assert "go on with `tpuctl watch --all`" in said.err


def test_a_loss_right_after_a_pass_waits_for_one_poll_only(cloud, user):
    """The list is compared with that of the last pass, however short ago that was."""
    preemptions = [200 + 97 * number for number in range(24)]
    for at in preemptions:
        cloud.later(at, lambda: cloud.model.preempt(cloud.in_use("demo")[0], notice=False))
    began = cloud.clock.monotonic()
    assert watch_all(user, preemptions[-1] + 97).code == 130
    asked = [at - began for at in cloud.asked("tpu.nodes.create")[-len(preemptions):]]  # fmt: skip
    late = [round(create - preempted) for create, preempted in zip(asked, preemptions, strict=True)]
    assert max(late) <= POLL + 2 * TICK, late


def test_each_poll_begins_with_a_new_list(cloud, user, monkeypatch):
    """A list that a pass has shared just before is not taken for the poll's."""
    outdated, really = [], ZoneLists.outdate
    monkeypatch.setattr(ZoneLists, "outdate", lambda self: (outdated.append(1), really(self))[1])
    watch_all(user, 150)
    assert 9 <= len(outdated) <= 11


def test_while_nothing_happens_one_list_in_each_poll_serves_all(cloud, user, monkeypatch):
    """Passes of their own are seldom: what could change a plan without a change in the list has its time."""
    listed, really = [], TpuNodes._listed
    monkeypatch.setattr(TpuNodes, "_listed", lambda self, *at: (listed.append(at[0]), really(self, *at))[1])
    looks = {"gets": 0}

    def count(method, response):
        looks["gets"] += method == "storage.buckets.list"
        return response

    cloud.distort = count
    watch_all(user, 900)
    assert 900 / POLL * 0.5 <= len(listed) <= 2.1 * 900 / POLL
    # Each pass looks at its bucket once.
    assert looks["gets"] <= 2 * (900 / MAX_STEADY + 3)


def test_a_deployment_that_cannot_be_watched_stops_no_other(cloud, user):
    """It is named with the way on, and the exit code is its own."""
    [spec] = (user.state / "gcp").glob("*/demo/spec.json")
    spec.write_text("{}")
    cloud.later(100, lambda: cloud.model.preempt("other-tpu-g1"))
    said = watch_all(user, 300)
    assert cloud.in_use("other") == ["other-tpu-g2"]
    assert "what is kept of demo cannot be read" in said.err
    assert said.code == 2


def test_each_lease_is_released_at_the_end(cloud, user):
    """The next command need not wait for one to expire."""
    assert watch_all(user, 60).code == 130
    assert not [name for name in cloud.objects(".tpuctl/") if name == ".tpuctl/lease"]
    assert user.down().code == 0


def test_without_anything_up_it_says_so(cloud):
    """There is nothing to watch."""
    said = User(cloud).type("watch", "--all")
    assert (said.code, "tpuctl up" in said.err) == (2, True)


def test_what_belongs_to_one_deployment_does_not_go_with_it(cloud, user):
    """A port or a file is of one."""
    said = user.run("watch", "--all")
    assert said.code == 2
    assert "--all and --file exclude each other" in said.err
