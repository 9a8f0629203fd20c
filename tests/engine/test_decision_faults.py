"""A fault of the decisions themselves: nothing is changed, looking goes on, and it is said once."""

from dataclasses import replace

from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.engine.reconcile import reconciler
from tests.engine.engine_lab import ZONE, one_zone_spec


def test_a_second_tpu_is_never_made_whatever_decides_it(lab, monkeypatch):
    """The loop goes on looking, and goes on working when the fault is over."""
    controller = lab.up(one_zone_spec())
    before, whole = lab.mutations(), reconciler.decide

    def faulty(*world):
        more = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g2", "a fault", ZONE, 2)
        plan = whole(*world)
        return replace(plan, changes=(*plan.changes, more))

    monkeypatch.setattr(reconciler, "decide", faulty)
    results = [controller.one_pass() for _ in range(3)]
    assert lab.mutations() == before
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    assert all("one TPU, never two" in result.plan.waiting[0] for result in results)
    assert controller.kinds().count("invariant") == 1

    monkeypatch.undo()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}
