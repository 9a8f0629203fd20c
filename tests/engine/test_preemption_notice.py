"""A machine's notice reaches the controller between two polls, and the replacement is asked for at once."""

import json

import pytest

from orchestrator.contract.bucket import object_names
from orchestrator.domain.observation import NodeState
from tests.engine.engine_lab import OTHER_ZONE, ZONE, EngineLab, one_zone_spec

MINUTE = 60.0


def ring(lab, incarnation=1):
    """Call the controller as the agent's bell does."""
    lab.put(f"{object_names.WAKE}{incarnation}", json.dumps({"at": lab.clock.now()}).encode())


def passes(controller, seconds, happen=None, at=0.0):
    """Run passes for a while and return when each was; *happen* happens *at* seconds from now."""
    lab, start, observed = controller.lab, controller.lab.clock.now(), []
    wait = lab.clock.wait

    def interrupted(pause, wake=None):
        end = lab.clock.now() + pause
        if happen is not None and lab.clock.now() < start + at <= end and not done:
            done.append(True)
            wait(start + at - lab.clock.now())
            happen()
        wait(end - lab.clock.now(), wake)

    done = []
    lab.clock.wait = interrupted
    controller.run(lambda r: observed.append(r.world.observed_at - start), seconds=seconds)
    lab.clock.wait = wait
    return observed


def test_a_ring_ends_the_pause_within_one_listen(lab):
    """Polls of a minute; the ring comes 10 s after one and is heard within 3 s, once."""
    controller = lab.up(one_zone_spec(watch__poll="1m"))
    observed = passes(controller, 150, lambda: ring(lab), at=70)
    early = [at for at in observed if 70 <= at <= 73.5]
    assert len(early) == 1
    assert [at for at in observed if 74 < at < 130] == []


def test_without_a_ring_the_polls_are_the_only_passes(lab):
    """Listening is no looking: the cloud is asked once a poll, whoever rang for an earlier incarnation."""
    controller = lab.up(one_zone_spec(watch__poll="1m"))
    ring(lab, incarnation=7)
    before = lab.cloud.calls["tpu.nodes.list"]
    observed = passes(controller, 10 * MINUTE)
    assert len(observed) <= 12
    assert lab.cloud.calls["tpu.nodes.list"] - before == len(observed)


def test_an_overdue_heartbeat_ends_a_long_pause(lab):
    """The machine vanishes without a word; with polls of an hour the silence is noticed within minutes."""
    controller = lab.up(one_zone_spec(watch__poll="1h"))
    lab.machines.report()
    observed = passes(controller, 59 * MINUTE, lambda: lab.cloud.preempt("demo-tpu-g1", notice=False), at=20)
    assert controller.record.node.incarnation == 2
    assert min(at for at in observed if at > 20) <= 20 + 2 * 4 * 30 + 5


@pytest.mark.parametrize("preempted", [True, False])
def test_the_replacement_is_asked_for_when_the_old_job_rests_not_before(tmp_path, preempted):
    """
    Notice, then rest: the new node is asked for while the cloud still shows the old one as READY.

    A machine that is only rebooted says the same but for `preempted`, and keeps its node.
    """
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up()
    lab.machines.report(notice=True, phase="stopping", preempted=preempted)
    assert controller.one_pass().plan.changes == ()
    assert controller.one_pass().plan.wake_in == 2.0
    lab.machines.report(phase="stopped")
    plan = controller.one_pass().plan
    wanted = [("DELETE", 1), ("CREATE", 2)] if preempted else []
    assert [(c.verb.name, c.incarnation) for c in plan.changes] == wanted
    assert controller.record.node.preemptions == len(wanted) // 2


PAIR = {"tpu__zones": [ZONE, OTHER_ZONE], "vm": "none"}


def test_where_there_is_another_zone_the_next_tpu_is_asked_for_while_the_old_one_saves(tmp_path):
    """It is no second trainer: it begins when it is named, and the old one goes with its last save."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(**PAIR))
    lab.machines.report(notice=True, preempted=True, phase="stopping")
    plan = controller.one_pass().plan
    assert [(c.verb.name, c.incarnation, c.zone) for c in plan.changes] == [("CREATE", 2, OTHER_ZONE)]
    assert controller.record.node.incarnation == 1
    assert controller.one_pass().plan.changes == ()
    lab.machines.report(phase="stopped")
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    assert [(c.verb.name, c.incarnation) for c in controller.one_pass().plan.changes] == [("DELETE", 1)]
    controller.run(lambda r: controller.record.race.claimed and r.plan.settled, seconds=900)
    assert list(lab.nodes()) == ["demo-tpu-g2"]
    assert sorted(lab.machines.starts.values()) == [1, 1]
    assert (controller.record.node.preemptions, controller.kinds().count("preempted")) == (1, 1)


def test_a_successor_that_boots_first_is_named_when_the_old_one_has_saved(tmp_path):
    """A cloud that is quicker than the notice is long: what is being saved is not cut short."""
    lab = EngineLab(tmp_path, latency="scaled")
    controller = lab.up(one_zone_spec(**PAIR))
    lab.machines.report(notice=True, preempted=True, phase="stopping")
    controller.run(lambda r: lab.nodes().get("demo-tpu-g2") is NodeState.READY, seconds=900)
    controller.run(seconds=20)
    assert set(lab.nodes()) == {"demo-tpu-g1", "demo-tpu-g2"}
    assert not controller.record.race.claimed
    for machine in [m for m in lab.machines.running if "-g1-" in m]:
        lab.machines.running[machine].update(phase="stopped")
    lab.machines.report()
    controller.run(lambda r: controller.record.race.claimed and r.plan.settled, seconds=900)
    lab.wait(60)
    controller.one_pass()
    assert list(lab.nodes()) == ["demo-tpu-g2"]
    assert [m for m in lab.machines.running if "-g1-" in m] == []


def test_a_successor_of_a_dead_controller_takes_over_by_itself(tmp_path):
    """The next controller learns from the bucket who has the job, also where it needs record and journal."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(**PAIR))
    lab.machines.report(notice=True, preempted=True, phase="stopping")
    controller.one_pass()
    lab.put(object_names.RECORD, b"torn")
    (lab.folder / "state" / "record.json").unlink()
    again = lab.controller(one_zone_spec(**PAIR))
    assert (again.record.node.incarnation, again.record.race.round) == (1, 2)
    lab.wait(900)
    again.run(lambda r: r.plan.settled, seconds=900)
    lab.wait(60)
    again.one_pass()
    assert list(lab.nodes()) == ["demo-tpu-g2"]
    assert again.record.node.incarnation == 2


def test_a_loss_without_a_watcher_is_counted_after_the_successor_has_the_job(tmp_path):
    """With no watcher the old TPU saves and ends and the next one claims the job: one preemption, one event."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(**PAIR))
    lab.machines.report(notice=True, preempted=True, phase="stopping")
    controller.one_pass()
    lab.machines.report(phase="stopped")
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.wait(900)
    controller.run(lambda r: r.plan.settled, seconds=900)
    assert controller.record.node.incarnation == 2
    assert (controller.record.node.preemptions, controller.kinds().count("preempted")) == (1, 1)


def test_a_slice_is_replaced_only_when_its_last_worker_rests(tmp_path):
    """One worker that still trains keeps the node: two nodes must never train at once."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    lab.machines.report(notice=True, preempted=True, phase="stopped")
    last = max(lab.machines.running)
    lab.machines.running[last].update(phase="run")
    lab.machines.report()
    assert controller.one_pass().plan.changes == ()
    lab.machines.running[last].update(phase="stopped")
    lab.machines.report()
    assert [c.verb.name for c in controller.one_pass().plan.changes] == ["DELETE", "CREATE"]


def test_a_preemption_with_notice_is_counted_once(tmp_path):
    """Reported by the workers first and shown by the state of the node later, it is one preemption."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE]))
    lab.change(stockouts=frozenset({ZONE, OTHER_ZONE}))
    lab.machines.report(notice=True, preempted=True, phase="stopped")
    lab.cloud.preempt("demo-tpu-g1", notice=True)
    controller.run(seconds=120)
    lab.change(stockouts=frozenset())
    controller.run(seconds=15 * MINUTE)
    assert controller.record.node.preemptions == 1
    assert controller.kinds().count("preempted") == 1
    assert [s for n, s in lab.nodes().items() if s is NodeState.READY] == [NodeState.READY]
