"""What a fleet's nodes did and for whom: what was not reported is unknown, and every second has one row."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.fleet_cost import (
    VM,
    Amount,
    by_user,
    fleet_cost,
    jobs_remaining,
    queue_curve,
    running,
    state_of,
    steps_redone,
)
from orchestrator.planning.fleet.tasks import Submission, TaskState
from orchestrator.planning.fleet.use import FleetNodeFacts, JobHistory, TaskEnd, TaskStart, lanes
from orchestrator.pricing.use_spans import Use

T = 1_000_000.0
TRAINING, STARTING, IDLE, LOST, UNKNOWN = Use.TRAINING, Use.STARTING, Use.IDLE, Use.LOST, Use.UNKNOWN


def heartbeat(at, phase=Phase.RUN, **more):
    """Return the last heartbeat of a start, *at* seconds after T."""
    return Heartbeat(1, 0, phase, T + at, **more)


def a_job(starts, ends=(), tasks=2, target=None, **more):
    """Return a job: starts are (task, node, at, report), ends (task, state, at)."""
    mine = {}
    for number, (task, node, at, last) in enumerate(starts, 1):
        mine[task] = (*mine.get(task, ()), TaskStart(task, number, node, T + at, last))
    submission = Submission(
        "sweep", tuple({} for _ in range(tasks)), JobSpec("x", target_steps=target), "b", "s", T, **more
    )
    return JobHistory(submission, mine, {task: TaskEnd(TaskState(word), T + at) for task, word, at in ends})


def a_node(*spans, name="n-1", ready=None):
    """Return a node with machines from and until some seconds after T."""
    found = tuple(
        Span(Kind.NODE, f"{name}-tpu-g{n}", "z", T + since, None if until is None else T + until)
        for n, (since, until) in enumerate(spans, 1)
    )
    marks = {} if ready is None else {found[0].name: T + ready}
    return FleetNodeFacts(name, found, marks, lambda _: (3.6, 7.2, 36.0))


def reported(lane):
    """Return a lane's spans as (use, since, until, task)."""
    return [(one.use, one.since - T, one.until - T, one.task) for one in lane.use_spans]


def test_a_node_boots_waits_works_and_waits():
    """The mark of the end counts, not what the machine said last."""
    job = a_job([(0, "n-1", 100, heartbeat(190))], [(0, "done", 200)])
    (lane,) = lanes([a_node((0, None), ready=60)], [job], T + 300)
    assert reported(lane) == [
        (STARTING, 0, 60, -1),
        (IDLE, 60, 100, -1),
        (TRAINING, 100, 200, 0),
        (IDLE, 200, 300, -1),
    ]
    assert lane.has_machine


def test_work_after_the_last_save_of_a_lost_machine_is_lost_and_so_is_what_came_until_it_was_gone():
    """The first is the task's, the second nobody's."""
    last = heartbeat(180, step=18, committed_step=15, committed_at=T + 150)
    job = a_job([(0, "n-1", 100, last), (0, "n-2", 210, heartbeat(290))])
    one, two = lanes([a_node((0, 200)), a_node((0, None), name="n-2")], [job], T + 300)
    assert reported(one) == [
        (STARTING, 0, 100, -1),
        (TRAINING, 100, 150, 0),
        (LOST, 150, 180, 0),
        (LOST, 180, 200, -1),
    ]
    assert reported(two)[-1] == (TRAINING, 210, 300, 0)
    assert running([one, two], T + 300) == {("sweep", 0)}


def test_a_task_of_two_slices_costs_the_time_of_both_its_nodes_and_is_one_task_in_the_queue():
    """By job, by task and by the login that has submitted it."""
    (start,) = a_job([(0, "n-1", 100, heartbeat(190))]).starts[0]
    submission = Submission("wide", ({},), JobSpec("x"), "b", "s", T, slices=(2, 2), user="alice")
    job = JobHistory(
        submission, {0: (replace(start, beside=("n-2",)),)}, {0: TaskEnd(TaskState.DONE, T + 200)}
    )
    found = lanes([a_node((0, None), ready=60), a_node((0, None), name="n-2", ready=60)], [job], T + 300)
    assert [reported(lane)[2] for lane in found] == [(TRAINING, 100, 200, 0)] * 2
    costs = fleet_cost(found, Amount())
    assert (costs.jobs["wide"].seconds, costs.tasks["wide", 0].usd) == (200, pytest.approx(0.2))
    assert by_user([job, a_job([])], costs) == {"alice": costs.jobs["wide"], "shared": Amount()}
    assert [change[1:] for change in queue_curve([job], found)[0]] == [(0, 1), (1, 0), (0, 0)]


def test_the_remaining_time_of_multi_slice_tasks_counts_all_their_nodes():
    """Two more tasks, each a hundred seconds on two of four nodes."""
    (start,) = a_job([(0, "n-1", 100, heartbeat(190))]).starts[0]
    submission = Submission("wide", ({}, {}, {}), JobSpec("x"), "b", "s", T, slices=(2, 2))
    job = JobHistory(
        submission, {0: (replace(start, beside=("n-2",)),)}, {0: TaskEnd(TaskState.DONE, T + 200)}
    )
    nodes = [a_node((0, None), name=f"n-{n}", ready=60) for n in (1, 2, 3, 4)]
    costs = fleet_cost(lanes(nodes, [job], T + 200), Amount())
    assert jobs_remaining([job], costs, frozenset(), 4) == {"wide": pytest.approx(100)}


@pytest.mark.parametrize("wrong", [10.0, 1e9])
def test_a_machine_whose_clock_is_wrong_saves_neither_before_its_start_nor_after_its_last_report(wrong):
    """Whatever it says of the time of its save."""
    last = heartbeat(180, step=18, committed_step=15, committed_at=wrong)
    (lane,) = lanes([a_node((0, 200))], [a_job([(0, "n-1", 100, last)])], T + 300)
    assert all(0 <= since <= until <= 200 for _, since, until, _ in reported(lane))
    assert sum(until - since for _, since, until, _ in reported(lane)) == 200


def test_a_machine_that_saved_its_last_step_lost_nothing():
    """As at a preemption with a notice."""
    last = heartbeat(180, Phase.STOPPED, step=18, committed_step=18)
    (lane,) = lanes([a_node((0, 180))], [a_job([(0, "n-1", 100, last)])], T + 300)
    assert reported(lane) == [(STARTING, 0, 100, -1), (TRAINING, 100, 180, 0)]


def test_what_a_silent_task_does_is_not_known():
    """Neither that it works nor that it is lost: its machine exists, and nobody has marked its end."""
    (lane,) = lanes([a_node((0, None))], [a_job([(0, "n-1", 100, heartbeat(150))])], T + 1000)
    assert reported(lane)[-1] == (UNKNOWN, 150, 1000, -1)
    assert running([lane], T + 1000) == frozenset()


def test_of_a_machine_that_never_reported_and_is_gone_nothing_is_known():
    """One that exists is on its way."""
    gone, there = lanes([a_node((0, 50)), a_node((0, None), name="n-2")], [], T + 80)
    assert reported(gone) == [(UNKNOWN, 0, 50, -1)]
    assert reported(there) == [(STARTING, 0, 80, -1)]


def test_a_node_without_a_task_is_idle_and_one_without_a_machine_has_no_time():
    """Each is a row all the same."""
    idle, none = lanes([a_node((0, None), ready=60), a_node(name="n-2")], [], T + 80)
    assert (reported(idle), reported(none), none.has_machine) == (
        [(STARTING, 0, 60, -1), (IDLE, 60, 80, -1)],
        [],
        False,
    )


def test_the_cost_adds_up_and_idle_time_has_a_row_of_its_own():
    """Every second of every machine is in it once."""
    last = heartbeat(180, step=18, committed_step=15, committed_at=T + 150)
    job = a_job([(0, "n-1", 100, last), (0, "n-2", 210, heartbeat(290))], [(0, "done", 290)])
    found = lanes([a_node((0, 200)), a_node((0, None), name="n-2")], [job], T + 300)
    costs = fleet_cost(found, Amount(300, 0.5, 0.5, upper_usd=0.6))
    assert costs.usd == pytest.approx((200 + 300) * 3.6 / 3600 + 0.5)
    assert costs.upper_usd == pytest.approx((200 + 300) * 7.2 / 3600 + 0.6)
    assert costs.on_demand_usd == pytest.approx((200 + 300) * 36 / 3600 + 0.5)
    assert costs.jobs["sweep"].seconds == pytest.approx(80 + 80)
    assert costs.jobs["sweep"].lost_usd == pytest.approx(30 * 3.6 / 3600)
    assert {name: one.seconds for name, one in costs.others.items()} == pytest.approx(
        {"starting": 100 + 210, "idle": 10, "lost": 20, VM: 300}
    )
    assert not costs.unpriced


def test_an_unknown_price_makes_the_cost_incomplete():
    """And no sum of zeros."""
    node = FleetNodeFacts("n-1", a_node((0, None)).spans, {}, lambda _: (None, None, None))
    assert fleet_cost(lanes([node], [], T + 10), Amount()).unpriced


def test_the_state_of_a_task_follows_from_mark_cancellation_and_reports():
    """In this order."""
    job = a_job([(1, "n-1", 0, heartbeat(0))], [(0, "failed", 5)], tasks=4, cancelled=(0, 2))
    states = [state_of(job, task, frozenset({("sweep", 1)})) for task in range(4)]
    assert [state.value for state in states] == ["failed", "running", "cancelled", "waiting"]


def test_steps_that_were_made_again_are_counted_where_both_machines_reported():
    """A machine that never spoke lost nothing that anybody knows of; a successor without a word is not known."""
    first = heartbeat(50, step=40)
    again = heartbeat(90, step=60, resumed_from=30)
    assert steps_redone(a_job([(0, "a", 0, first), (0, "b", 60, again)]), 0) == 10
    assert steps_redone(a_job([(0, "a", 0, first), (0, "b", 60, None)]), 0) is None
    assert steps_redone(a_job([(0, "a", 0, None), (0, "b", 60, again)]), 0) == 0
    assert steps_redone(a_job([]), 0) == 0


def test_a_start_that_only_found_the_task_done_hides_no_step_and_no_loss():
    """It has reported the step of the checkpoint and no loss."""
    job = a_job(
        [(0, "a", 0, heartbeat(50, step=40, loss=0.5)), (0, "b", 60, heartbeat(61, committed_step=42))]
    )
    assert (job.progress(0), job.progress(1)) == ((42, 0.5), (None, None))


def test_the_remaining_time_is_known_when_a_task_is_done_and_is_shared_by_the_nodes():
    """Four tasks of 100 s on two nodes; before anything is known nothing is said."""
    done = a_job([(0, "n-1", 0, None)], [(0, "done", 100)], tasks=5)
    found = lanes([a_node((0, None))], [done], T + 100)
    assert jobs_remaining([done], fleet_cost(found, Amount()), frozenset(), 2) == {"sweep": 200.0}
    fresh = a_job([])
    assert jobs_remaining([fresh], fleet_cost([], Amount()), frozenset(), 2) == {}


def test_the_remaining_time_of_a_running_task_comes_from_its_own_steps():
    """And its length serves for those that wait."""
    job = a_job([(0, "n-1", 0, heartbeat(100, step=50, rate=0.5))], tasks=2, target=100)
    found = lanes([a_node((0, None))], [job], T + 100)
    remaining = jobs_remaining([job], fleet_cost(found, Amount()), running(found, T + 100), 1)
    # 50 steps at 0.5 a second, and another task of 100 + 100 seconds.
    assert remaining == {"sweep": pytest.approx(300.0)}


def test_the_queue_over_time_counts_what_runs_and_what_waits():
    """A lost task waits again until another node has it; what was cancelled unseen is left out and counted."""
    job = a_job(
        [(0, "n-1", 10, heartbeat(50)), (0, "n-2", 70, heartbeat(90))],
        [(0, "done", 90)],
        tasks=3,
        cancelled=(2,),
    )
    found = lanes([a_node((0, 60)), a_node((0, None), name="n-2")], [job], T + 100)
    curve, unknown = queue_curve([job], found)
    assert unknown == 1
    assert [(at - T, busy, idle) for at, busy, idle in curve] == [
        (0, 0, 2), (10, 1, 1), (50, 0, 2), (70, 1, 1), (90, 0, 1),
    ]  # fmt: skip
