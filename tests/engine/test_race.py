"""A race in the local cloud: several zones are asked at once, one TPU gets the job, the others go at once."""

import json
from collections import Counter

import pytest

from orchestrator.contract.bucket import object_names
from orchestrator.domain.observation import NodeState
from tests.engine.engine_lab import ControllerKilled, EngineLab, one_zone_spec

THREE = ["us-central1-b", "us-central1-c", "us-central1-f"]
THERE = {"tpu__zones": THREE, "tpu__type": "v2-8", "tpu__runtime": "tpu-ubuntu2204-base", "vm": "none"}
RACE = one_zone_spec(tpu__strategy="race", **THERE)


@pytest.fixture
def slow(tmp_path):
    """A cloud in which creates take their real time."""
    return EngineLab(tmp_path, latency="realistic")


def jobs(lab):
    """Return the names of the TPUs on which the job runs."""
    return sorted({machine.split("-w")[0].rsplit("-", 1)[0] for machine in lab.machines.running})


def claim(lab, race_round=1):
    """Return the incarnation that is named the winner of a race."""
    return json.loads(lab.get(f"{object_names.CLAIM}{race_round}"))["incarnation"]


def settled(lab, controller):
    """Return the one TPU that is left and runs the job, after everything has come to rest."""
    controller.up()
    lab.wait(300)
    controller.run(lambda r: r.plan.settled)
    lab.wait(300)
    ((name, state),) = lab.nodes().items()
    assert state is NodeState.READY
    assert [job.endswith(name) for job in jobs(lab)] == [True], jobs(lab)
    assert name == f"demo-tpu-g{controller.record.node.incarnation}"
    assert controller.record.race.candidates == ()
    return name


def asked(controller):
    """Return how often each zone was asked for a TPU."""
    return Counter(e.data["zone"] for e in controller.events if e.kind == "tpu-create")


def test_two_zones_are_asked_at_once_and_one_gets_the_job(slow):
    """One create in each of the first two; the loser never ran a job, and one winner is named."""
    controller = slow.controller(RACE)
    name = settled(slow, controller)
    assert asked(controller) == dict.fromkeys(THREE[:2], 1)
    assert claim(slow) == int(name.rsplit("g", 1)[1])
    starts = [machine for machine, count in slow.machines.starts.items() if count]
    assert all(f"{name}-" in machine for machine in starts)


def test_the_zones_that_have_none_do_not_hold_up_the_one_that_has(slow):
    """Two of three lack capacity: the third is not asked later than in a quiet world."""
    slow.change(stockouts=frozenset(THREE[:2]))
    began = slow.clock.now()
    controller = slow.controller(RACE)
    controller.up()
    assert controller.record.node.zone == THREE[2]
    assert slow.clock.now() - began < 400
    settled(slow, controller)


def test_a_zone_with_capacity_again_is_asked_in_a_later_wave(slow):
    """After each zone has refused, the next wave asks in all of them."""
    slow.change(stockouts=frozenset(THREE))
    controller = slow.controller(RACE)
    controller.want()
    controller.run(seconds=120, passes=200)
    slow.change(stockouts=frozenset(THREE[1:]))
    settled(slow, controller)
    assert controller.record.node.zone == THREE[0]


def test_a_lost_winner_is_replaced_by_a_new_race(slow):
    """Numbers only grow, so that the machines of the last race know that they are old."""
    controller = slow.controller(RACE)
    first = settled(slow, controller)
    slow.cloud.preempt(first, notice=False)
    second = settled(slow, slow.controller(RACE))
    assert int(second.rsplit("g", 1)[1]) > 2
    assert claim(slow, race_round=3) == int(second.rsplit("g", 1)[1])


def test_a_machine_that_was_first_wins_although_another_tpu_is_observed_first(slow):
    """Its claim stands: the controller deletes the others, also one that is READY."""
    controller = slow.controller(RACE)
    controller.want()
    controller.run(lambda r: len(slow.nodes()) == 2, seconds=600)
    slow.put(f"{object_names.CLAIM}1", json.dumps({"incarnation": 2}).encode())
    assert settled(slow, controller) == "demo-tpu-g2"


def test_the_controller_yields_to_a_machine_that_was_faster(slow):
    """Between the look and the claim of the controller, a machine has claimed the round."""
    controller = slow.controller(RACE)
    controller.want()
    controller.run(lambda r: len(slow.nodes()) == 2, seconds=600)
    slow.machines.silent = True
    claimed = []

    def faster(what):
        if "/upload/" in what and NodeState.READY in slow.nodes().values() and not claimed:
            claimed.append(2)
            slow.put(f"{object_names.CLAIM}1", json.dumps({"incarnation": 2}).encode())

    slow.wire.before = faster
    controller.run(lambda r: controller.record.race.claimed, seconds=900)
    assert claimed
    assert controller.record.node.incarnation == claim(slow) == 2


def test_a_controller_that_is_killed_after_each_create_continues_the_race(slow):
    """Each create finds the round in the record, whoever goes on."""
    killed = 0

    def kill(what):
        nonlocal killed
        if what.startswith("POST /v2/") and what.endswith("/nodes") and killed < 3:
            killed += 1
            raise ControllerKilled

    slow.wire.after = kill
    for _ in range(3):
        try:
            slow.controller(RACE).up()
        except ControllerKilled:
            continue
    slow.wire.after = lambda what: None
    assert killed >= 1
    settled(slow, slow.controller(RACE))
    paid = {use.resource for use in slow.cloud.kernel.state.usage if "demo-tpu" in use.resource}
    assert len(paid) >= 1


def test_a_lost_record_is_no_second_job(slow):
    """The labels name the race and the bucket its winner: that TPU stays, whatever number the others have."""
    controller = slow.controller(RACE)
    controller.want()
    controller.run(lambda r: len(slow.nodes()) == 2, seconds=600)
    slow.put(f"{object_names.CLAIM}1", json.dumps({"incarnation": 1}).encode())
    slow.put(object_names.RECORD, b"torn")
    (slow.folder / "state" / "record.json").unlink()
    assert settled(slow, slow.controller(RACE)) == "demo-tpu-g1"


def test_down_in_the_middle_of_a_race_leaves_nothing(slow):
    """Also those TPUs go that no list has shown yet."""
    controller = slow.controller(RACE)
    controller.want()
    controller.one_pass()
    controller.one_pass()
    deletion = slow.controller(RACE).deletion()
    deletion.begin()
    assert deletion.machines() == ()
    slow.wait(600)
    assert slow.nodes() == {}


def test_failover_asks_no_more_than_before(slow):
    """One zone at a time, and no question about a race."""
    controller = slow.up(one_zone_spec(**THERE))
    assert asked(controller) == {THREE[0]: 1}
    assert slow.objects(object_names.CLAIM) == []
    assert controller.record.race.round == 0
