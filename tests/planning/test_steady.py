"""When a deployment may be left alone but for the list of TPUs: never longer than its plan stays right."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.contract.phase import Phase
from orchestrator.domain.machines.maintenance import Maintenance
from orchestrator.domain.observation import Absent, NodeState, Operation, Present, Unknown, VmState
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.record import Refusal
from orchestrator.domain.spec import JobSpec, TpuSpec, WatchSpec
from orchestrator.domain.text.units import Duration
from orchestrator.domain.wait import Wait
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.job import SILENCE, heartbeat_interval
from orchestrator.planning.steady import MAX_STEADY, steady_until
from orchestrator.planning.update_record import update_record
from tests.planning.test_decide_properties import RECORDS, WORLDS
from tests.planning.worlds import NOW, ZONE, heartbeat, node, record, spec, vm, world

PLAN = Plan()
SILENT = SILENCE * heartbeat_interval(spec())


def until(s=None, w=None, r=None, plan=PLAN, usd_hour=0.0):
    """Return the seconds for which a deployment that costs *usd_hour* is left alone."""
    end = steady_until(
        s or spec(), w or world(), r or record(), plan, lambda at: (at - NOW) / 3600 * usd_hour
    )
    return end - NOW


def test_a_job_that_runs_is_not_read_for_a_while():
    """Only the list of TPUs is looked at meanwhile."""
    assert until() == MAX_STEADY


def test_a_report_that_would_be_overdue_ends_it():
    """Silence is a sign that comes by itself."""
    old = world(heartbeats=Present((heartbeat(updated=NOW - SILENT + 7),)))
    assert until(w=old) == pytest.approx(7)


def test_the_time_to_live_ends_it():
    """It is over at a moment that is known."""
    assert until(spec(watch=WatchSpec(ttl=Duration(2010)))) == pytest.approx(10)


def test_a_budget_that_would_be_used_up_allows_none():
    """What runs costs more every second."""
    watched = spec(watch=WatchSpec(budget_usd=1.0))
    assert until(watched, usd_hour=1.0) == MAX_STEADY
    assert until(watched, usd_hour=3600.0) == 0


REFUSED = Refusal(NOW - 60, ZONE, Retry.CAPACITY, "no more", Kind.NODE)
RUNNING = Operation("o", Kind.NODE, Verb.CREATE, "demo-tpu-g1", ZONE, 1)
RESTLESS = {
    "a change": {"plan": Plan((Change(Kind.NODE, Verb.DELETE, "n", "why", ZONE, 1),))},
    "something that is waited for": {"plan": Plan(waits=(Wait("the TPU"),))},
    "a look that is due": {"plan": Plan(wake_in=2.0)},
    "a deadline": {"s": spec(watch=WatchSpec(deadline=Duration(9e4)), job=JobSpec("c", target_steps=9))},
    "a place in the queue": {"s": spec(tpu=TpuSpec("v5litepod-8", (ZONE,), request="queued"))},
    "an operation": {"r": record(operations=(RUNNING,))},
    "a refusal": {"r": record(refusals=(REFUSED,))},
    "a doubt": {"r": record(first_seen={"node:1:unhealthy": NOW - 5})},
    "no TPU": {"w": world(nodes=Present(()))},
    "a second TPU": {"w": world(nodes=Present((node(), node(2))))},
    "a TPU that is being made": {"w": world(nodes=Present((node(state=NodeState.CREATING),)))},
    "an unhealthy TPU": {"w": world(nodes=Present((node(healthy=False),)))},
    "maintenance": {"w": world(nodes=Present((node(maintenance=Maintenance("PENDING")),)))},
    "a list that failed": {"w": world(nodes=Unknown("503"))},
    "a VM that stops": {"w": world(vm=Present(vm(state=VmState.STOPPING)))},
    "no VM": {"w": world(vm=Absent())},
    "a bucket out of reach": {"w": world(bucket=Unknown("503"))},
    "reports out of reach": {"w": world(heartbeats=Unknown("503"))},
    "no report": {"w": world(heartbeats=Present(()))},
    "a worker that has not begun": {"w": world(heartbeats=Present((heartbeat(phase=Phase.RESTORE),)))},
    "a notice": {"w": world(heartbeats=Present((heartbeat(notice=True),)))},
    "a report of an earlier TPU": {"w": world(heartbeats=Present((heartbeat(incarnation=0),)))},
    "a worker that is missing": {"w": world(heartbeats=Present((heartbeat(), heartbeat(1))))},
}


@pytest.mark.parametrize("why", RESTLESS)
def test_whatever_may_move_on_by_itself_is_looked_at_in_each_poll(why):
    """Anything but a job that runs on all that it needs."""
    assert until(**RESTLESS[why]) == 0


ODD_WORLDS = st.tuples(WORLDS, RECORDS)
NEARLY_STEADY = st.tuples(
    st.builds(
        lambda age, phase: world(heartbeats=Present((heartbeat(updated=NOW - age, phase=phase),))),
        st.floats(0, 1.2 * SILENT),
        st.sampled_from([Phase.RUN, Phase.RUN, Phase.RUN, Phase.STOPPED]),
    ),
    st.builds(
        lambda ago: record(started_at=NOW - ago, first_seen={"node:1:ready": NOW - 900}), st.floats(0, 2000)
    ),
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ODD_WORLDS | NEARLY_STEADY,
    st.floats(0, 1),
    st.floats(0, 400),
    st.sampled_from([WatchSpec(), WatchSpec(budget_usd=50.0), WatchSpec(ttl=Duration(1900))]),
)
def test_no_plan_changes_by_itself_before_that_time(case, part, usd_hour, watch):
    """The same look, later, makes the same plan, as long as the time is not over."""
    (observed, known), wanted = case, spec(watch=watch)
    before = update_record(known, observed)

    def usd_so_far(at):
        return usd_hour * max(0.0, at - before.started_at) / 3600

    plan = decide(wanted, observed, before, usd_so_far(NOW))
    end = steady_until(wanted, observed, before, plan, usd_so_far)
    at = NOW + part * (end - NOW) * 0.999
    later = replace(observed, observed_at=at)
    if end > NOW:
        assert decide(wanted, later, update_record(before, later), usd_so_far(at)) == plan
