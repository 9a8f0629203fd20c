"""The deadline of a deployment: what is learned from reports, and what the next TPU is to be."""

from dataclasses import replace

import pytest

from orchestrator.config.rules.loop import RULES
from orchestrator.domain.job_progress import ProgressEstimate
from orchestrator.domain.machines.queued_resource import QueuedResource, QueuedState
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Refusal, Span
from orchestrator.domain.text.units import Duration, Until
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.next_zone import hopeless
from orchestrator.planning.tpu.on_demand import deadline_status, situation, update_progress
from orchestrator.planning.tpu.queued_tpu import merged
from tests.kit.records import changed
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, record, spec, world

HOUR = 3600.0
KNOWN = ProgressEstimate(step=0, seconds_per_step=36.0, cold=200.0, commit_interval=600.0)
"""A job of 1,000 steps takes ten hours."""


def due(text="20h", **tpu):
    """Return a spec of a job of 1,000 steps with a deadline."""
    base = spec()
    return replace(
        base,
        tpu=replace(base.tpu, **tpu),
        job=replace(base.job, target_steps=1000),
        watch=replace(base.watch, deadline=Until(text)),
    )


def begun(hours, **changes):
    """Return the record of a deployment that was brought up so many hours ago."""
    return record(**{"started_at": NOW - hours * HOUR, "progress": KNOWN, **changes})


def asked(wants, was, **shown):
    """Return the TPU that a pass asks for, or None."""
    shown = {"nodes": Present(()), "heartbeats": Present(()), **shown}
    plan = decide(wants, world(**shown), was)
    made = [c for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.CREATE)]
    return made[0] if made else None


def lost(hours, **changes):
    """Return such a record whose TPU is surely gone."""
    return begun(hours, **{"requested_at": 0.0, "accepted": False, **changes})


def test_the_time_of_a_step_and_the_last_save_are_learned():
    """From the first step on, by the slowest worker; a start before it shows nothing."""
    reports = (
        heartbeat(0, step=150, began_step=100, committed_step=140, committed_at=NOW - 50, progress_at=NOW,
             timings={"first_step": NOW - 500}),
        heartbeat(1, step=160, began_step=100, committed_step=130, committed_at=NOW - 60, progress_at=NOW,
             timings={"first_step": NOW - 500}),
    )  # fmt: skip
    observed = world(heartbeats=Present(reports), nodes=Present((node(created_at=NOW - 800),)))
    learned = update_progress(record(), observed).deadline.progress
    assert (learned.step, learned.seconds_per_step, learned.cold) == (130, 10.0, 300.0)
    assert learned.commit_interval == 450.0
    assert update_progress(record(), world(heartbeats=Present(()))).deadline.progress == ProgressEstimate()


def test_without_a_deadline_nothing_is_on_demand():
    """However late it is."""
    change = asked(spec(), lost(1000))
    assert change is None or not change.on_demand
    assert deadline_status(spec(), world(), begun(1)) is None


@pytest.mark.parametrize(("hours", "on_demand"), [(0.5, False), (9.9, True)])
def test_the_next_tpu_is_on_demand_when_the_slack_is_used_up(hours, on_demand):
    """Ten hours of work: after half an hour of twenty spot will do, after almost ten it will not."""
    change = asked(due(), lost(hours))
    assert change is not None
    assert change.on_demand == on_demand


def test_after_the_deadline_spot_is_asked_for():
    """What cannot be had any more is not paid for."""
    change = asked(due(), lost(21))
    assert change is not None
    assert not change.on_demand
    assert deadline_status(due(), world(), begun(21)).forecast == "missed"


def test_a_spot_request_that_does_not_start_is_replaced_by_on_demand():
    """It may come or not; on demand is asked for in the same pass, in its place."""
    making = {"nodes": Present((node(state=NodeState.CREATING),))}
    assert asked(due(), begun(9.9), **making).on_demand
    assert asked(due(), begun(5), **making) is None


def test_a_tpu_whose_workers_could_not_be_asked_is_not_replaced():
    """It may work since long (seed 7 of the simulated runs): unknown is not absent."""
    assert asked(due(), begun(9.9), nodes=Present((node(),))).on_demand
    no_heartbeats = {"nodes": Present((node(),)), "heartbeats": Unknown("503")}
    assert decide(due(), world(**no_heartbeats), begun(9.9)).changes == ()


def test_a_queued_request_is_given_up_before_the_slack_is_used_up():
    """It is as good as nothing: what decides is the reserve, as without a TPU."""
    place = QueuedResource("demo-tpu-g1", ZONE, QueuedState.WAITING_FOR_RESOURCES, 1, created_at=NOW - HOUR)
    queued = {"nodes": Present(merged((), (place,)))}
    assert asked(due(request="queued"), begun(9.5), **queued).on_demand
    assert asked(due(request="queued"), begun(1), **queued) is None


def test_a_create_whose_answer_is_open_is_not_doubled():
    """It is not observed yet, and it may exist."""
    assert asked(due(), begun(9.9, accepted=True, requested_at=NOW - 5)) is None


@pytest.mark.parametrize(("request_as", "hours"), [("node", 1 / 6), ("queued", 1.0)])
def test_spot_is_asked_for_again_while_on_demand_works_but_not_at_once(request_as, hours):
    """Ten minutes after a refusal; where on demand has to go first, a refusal is believed for an hour, then two."""
    begun_on_demand = begun(1, on_demand=(1,), incarnation=1)
    works = {"nodes": Present((node(),)), "heartbeats": Present((heartbeat(step=5, committed_step=5),))}
    wants = due(request=request_as)
    assert asked(wants, begun_on_demand, **works).on_demand is False
    for ago, again in ((0.9, False), (1.1, True)):
        refused = changed(begun_on_demand, progress=replace(KNOWN, spot_refused_at=NOW - ago * hours * HOUR))
        assert (asked(wants, refused, **works) is not None) == again
    if request_as == "node":
        return
    twice = changed(
        begun_on_demand, on_demand=(1, 0), progress=replace(KNOWN, spot_refused_at=NOW - 1.1 * HOUR)
    )
    twice = changed(
        twice, spans=(Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 9, spot=False),), on_demand=(1, 2)
    )
    assert asked(wants, twice, **works) is None


def test_a_refusal_of_on_demand_says_nothing_about_spot():
    """Without quota for on demand the deployment goes on with spot."""
    refusals = tuple(
        Refusal(NOW - 5, zone, Retry.QUOTA, on_demand=True) for zone in (ZONE, OTHER_ZONE) for _ in range(5)
    )
    was = lost(9.9, refusals=refusals)
    assert hopeless(was) is None
    change = asked(due(), was)
    assert change is not None
    assert not change.on_demand


def test_an_unknown_time_of_a_step_is_held_to_need_half_of_the_time():
    """Before the first step."""
    found = situation(due(), world(heartbeats=Present(())), begun(1, progress=ProgressEstimate()))
    assert found.work == pytest.approx(10 * HOUR)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"steps": None}, "the length of the job, which is not known"),
        ({"ttl": Duration(HOUR)}, "later than the end of ttl"),
    ],
)
def test_a_deadline_that_cannot_work_is_refused(changes, said):
    """Without a length nobody can say whether the job is in time."""
    wants = due()
    if "steps" in changes:
        wants = replace(wants, job=replace(wants.job, target_steps=None))
    if "ttl" in changes:
        wants = replace(wants, watch=replace(wants.watch, ttl=changes["ttl"]))
    found = [problem.message for rule in RULES for problem in rule.find(wants, None)]
    assert [said in message for message in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("text", "at"),
    [("36h", 100 + 36 * HOUR), ("1970-01-02T00:00Z", 86400.0), ("1970-01-01T02:00+01:00", HOUR)],
)
def test_a_point_in_time_is_a_duration_or_a_date(text, at):
    """A duration counts from the start, a date does not."""
    assert Until.parse(text).at(100.0) == at


@pytest.mark.parametrize("text", ["", "soon", "2030-01-31T18:00", "36", "-5h", "0h"])
def test_what_is_no_point_in_time_is_refused(text):
    """A date without a time zone means another moment to each reader."""
    with pytest.raises(ValueError, match=r"write a|time zone"):
        Until.parse(text)
