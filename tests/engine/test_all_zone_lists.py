"""A deployment of many zones looks at them by one list, and believes no absence that a gap could explain."""

from itertools import pairwise

import pytest

from orchestrator.domain.observation import NodeState, Unknown
from tests.engine.engine_lab import EngineLab, one_zone_spec

ZONES = ["us-central1-b", "us-central1-c", "us-central1-f"]
MANY = one_zone_spec(tpu__zones=ZONES, tpu__type="v2-8", tpu__runtime="tpu-ubuntu2204-base", vm="none")


@pytest.fixture
def lab(tmp_path):
    """A cloud of its own."""
    return EngineLab(tmp_path)


def lists(lab):
    """Return how many lists of TPUs were asked for."""
    return lab.cloud.calls["tpu.nodes.list"]


def test_three_zones_take_two_calls_of_a_pass(lab):
    """The zone of the TPU by its own list, the others by one, once each has answered by itself."""
    controller = lab.up(MANY)
    counts = [lists(lab)]
    for _ in range(3):
        controller.one_pass()
        counts.append(lists(lab))
    assert [now - before for before, now in pairwise(counts)] == [3, 2, 2]


def test_a_tpu_in_another_zone_is_observed(lab):
    """What an earlier life has left there is found, and goes."""
    controller = lab.up(MANY)
    controller.cloud.nodes.create(controller.blueprint.new_node(controller.record, ZONES[2], 0))
    lab.wait(5)
    lab.controller(MANY).run(lambda r: len(lab.nodes()) == 1, seconds=600)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}


@pytest.mark.parametrize("how", ["a zone", "all"])
def test_nothing_is_made_while_a_zone_gives_no_answer(lab, how):
    """A TPU of ours may be there: unknown is not absent, in a zone's own list as in one over all."""
    controller = lab.up(MANY)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    if how == "a zone":
        lab.cloud.set_zone_state(ZONES[1], "unreachable")
    else:
        lab.cloud.fail_next("tpu.nodes.list", ["unreachable"] * 100)
    controller.run(seconds=300)
    assert lab.mutations()["tpu.nodes.create"] == 1
    lab.cloud.kernel.state.faults.clear()
    lab.cloud.set_zone_state(ZONES[1], "reachable")
    lab.controller(MANY).up()
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}


def test_a_zone_that_was_hidden_meanwhile_is_asked_by_itself(lab):
    """A list over all zones leaves it out without a word: after ten minutes its own list is wanted again."""
    controller = lab.up(MANY)
    lab.change(hidden_zones=frozenset(ZONES[1:]))
    lab.wait(700)
    assert isinstance(controller.one_pass().world.nodes, Unknown)


def test_a_zone_that_the_file_does_not_name_may_be_silent(lab):
    """It is none of this deployment's."""
    lab.cloud.set_zone_state("us-west4-a", "unreachable")
    lab.up(MANY)
    assert len(lab.nodes()) == 1


def test_where_the_api_refuses_such_a_list_each_zone_is_asked(lab, monkeypatch):
    """Refused once, it is not asked for again."""
    controller = lab.controller(MANY)
    monkeypatch.setattr("orchestrator.google.nodes.ALL_ZONES", "nowhere")
    controller.up()
    controller.one_pass()
    counts = [lists(lab)]
    for _ in range(2):
        controller.one_pass()
        counts.append(lists(lab))
    assert [now - before for before, now in pairwise(counts)] == [len(ZONES)] * 2
