"""A deadline: on demand helps out when spot does not come, and leaves when it is worth it; the bill knows."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.text.units import Duration, Until
from orchestrator.errors import LimitReachedError
from orchestrator.planning.tpu.on_demand import deadline_status
from orchestrator.pricing.cost_breakdown import cost_breakdown
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.engine.engine_lab import ZONE, EngineLab, one_zone_spec

HOUR = 3600.0
NO_SPOT = frozenset({f"{ZONE}/spot"})
STEP_SECONDS, STEPS, SAVE = 10.0, 720, 60
"""The job: 720 steps of 10 s, two hours in all, a checkpoint each ten minutes."""
START = 120.0
ON_DEMAND_QUOTA = "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"


def due(text="3.2h", **overrides):
    """Return a spec of that job, to be done so long after the first `up`."""
    base = {
        "vm": "none",
        "watch__poll": Duration(110),
        "watch__listen": Duration(110),
        "job__target_steps": STEPS,
    }
    return one_zone_spec(**{**base, "watch__deadline": Until(text), **overrides})


class LabTraining:
    """Let the machines of a lab train: steps come with time, and each SAVE-th is committed."""

    def __init__(self, lab):
        self.lab, self.began, self.saved, self.target = lab, {}, 0, STEPS
        self.report = lab.machines.report
        lab.machines.report = self

    def __call__(self, **news):
        now = self.lab.clock.now()
        for machine, state in self.lab.machines.running.items():
            at, first = self.began.setdefault(machine, (now, self.saved))
            steps = first + int(max(0.0, now - at - START) / STEP_SECONDS)
            if steps <= first:
                continue
            saved = max(first, steps // SAVE * SAVE)
            timings = {"first_step": at + START}
            state.update(step=min(steps, self.target), began_step=first, progress_at=now, timings=timings)
            state.update(committed_step=saved, committed_at=at + START + (saved - first) * STEP_SECONDS)
            state.update(phase="done" if steps >= self.target else "run")
            self.saved = max(self.saved, saved)
        self.report(**news)


@pytest.fixture
def lab(tmp_path):
    """Return a cloud whose machines train."""
    lab = EngineLab(tmp_path, latency="scaled")
    lab.training = LabTraining(lab)
    return lab


def tiers(lab):
    """Return for each TPU that was paid for whether it was spot."""
    return [use.spot for use in lab.cloud.kernel.state.usage if "tpu" in use.resource]


def test_with_spot_at_hand_nothing_is_bought_on_demand(lab):
    """Spot comes, works and ends in time: the deadline changes nothing."""
    controller = lab.controller(due())
    controller.want()
    result = controller.run(lambda r: r.plan.outcome is not None and not r.plan.waiting, passes=1000)
    assert result.plan.outcome.value == "done"
    assert tiers(lab) == [True]
    assert controller.record.deadline.on_demand == ()
    assert controller.record.deadline.progress.seconds_per_step == pytest.approx(STEP_SECONDS, rel=0.05)


def to_the_end(controller, **options):
    """Run until the job is done; return how long that took, and the result."""
    start = controller.lab.clock.now()
    options = {"passes": 3000, **options}
    result = controller.run(lambda r: r.plan.outcome is not None and not r.plan.waiting, **options)
    return controller.lab.clock.now() - start, result


def test_a_stockout_of_spot_leads_to_on_demand_in_time(lab):
    """
    Spot never comes: it is waited for as long as there is slack, then on demand is in time.

    The controller is killed meanwhile; the next one knows what was asked for on demand, and prices it so.
    """
    lab.change(stockouts=NO_SPOT)
    start = lab.clock.now()
    controller = lab.controller(due())
    controller.want()
    controller.run(lambda r: bool(tiers(lab)), passes=1000)
    assert lab.clock.now() - start > 0.2 * HOUR, "the slack was not used to wait for spot"
    again = lab.controller(due())
    assert again.record.deadline.on_demand == (again.record.node.incarnation,)
    _, result = to_the_end(again)
    assert result.plan.outcome.value == "done"
    assert lab.clock.now() - start < 3.2 * HOUR
    assert set(tiers(lab)) == {False}


def test_spot_that_comes_back_is_taken_again(lab):
    """
    Spot, on demand in between, and spot again some minutes after its last refusal: in time.

    The one on demand works until the next one is READY: nothing is lost between the two.
    """
    lab.training.target = 2 * STEPS
    controller = lab.controller(due("5h", job__target_steps=2 * STEPS))
    controller.want()
    controller.run(lambda r: lab.training.saved >= 480, passes=1000)
    lab.change(stockouts=NO_SPOT)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(lambda r: False in tiers(lab), passes=1000)
    lab.change(stockouts=frozenset())
    took, _ = to_the_end(controller)
    assert lab.training.saved >= 2 * STEPS - SAVE
    assert took < 5 * HOUR
    assert tiers(lab) == [True, False, True]
    _, on_demand, cheap = (use for use in lab.cloud.kernel.state.usage if "tpu" in use.resource)
    assert on_demand.end >= cheap.start


def test_on_demand_is_priced_as_such_and_the_budget_knows(lab):
    """The bill agrees with the cloud's own meter; a budget for spot stops the TPU on demand in time (I6)."""
    lab.change(stockouts=NO_SPOT)
    controller = lab.controller(due(watch__budget_usd=5.0))
    controller.want()
    with pytest.raises(LimitReachedError):
        to_the_end(controller)
    now = lab.clock.now()
    metered = sum(
        (use.usd_hour or 0.0) * ((use.end or now) - use.start) / HOUR
        for use in lab.cloud.kernel.state.usage
        if not use.free
    )
    estimate = cost_so_far(controller.spec, load_catalog(), controller.record, now).known_usd
    assert estimate == pytest.approx(metered, rel=0.1)
    assert metered < 5.0 * 1.1
    items = cost_breakdown(controller.spec, load_catalog(), controller.record, (), now).items
    assert any(item.what.endswith(", on demand") for item in items)


def test_without_quota_for_on_demand_spot_goes_on(lab):
    """A project may have no quota but for spot: that ends nothing, and the forecast says what is to come."""
    lab.change(stockouts=NO_SPOT, quotas={(ON_DEMAND_QUOTA, ZONE): 0})
    controller = lab.controller(due("2.2h"))
    controller.want()
    controller.run(seconds=1.2 * HOUR, passes=3000)
    assert tiers(lab) == []
    result = controller.one_pass()
    forecast = deadline_status(controller.spec, result.world, controller.record)
    assert forecast.forecast == "cannot be met"
    lab.change(stockouts=frozenset())
    to_the_end(controller)
    assert tiers(lab) == [True]
