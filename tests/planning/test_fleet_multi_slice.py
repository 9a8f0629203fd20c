"""Which nodes of a fleet go to another zone, so that a task of several slices can begin."""

import pytest

from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.multi_slice import (
    Gathering,
    MultiSliceTask,
    gather,
    multi_slice_tasks,
    shortage,
)
from orchestrator.planning.fleet.size import FleetNode, FleetNodePhase, SlurmNode
from orchestrator.planning.fleet.tasks import SlurmTask, Submission, TaskState

A, B, ZONES = "z-a", "z-b", ("z-a", "z-b")
TASK = MultiSliceTask("wide", 0, 2)
LATER = 1000.0


def node(number, zone, state="IDLE", phase=FleetNodePhase.UP, **more):
    """Return a node; one whose state is DOWN is on its way."""
    return FleetNode(f"n-{number}", phase, SlurmNode(frozenset({state}), zone=zone), **more)


def decide(nodes, task=TASK, refused=(), since=0.0, now=LATER):
    """Return what is done about one task that has waited for long."""
    return gather(shortage([task], nodes), nodes, ZONES, refused, now, since)


def submission(name="wide", slices=(2, 2), at=1.0, **more):
    """Return a job of two tasks of several slices."""
    return Submission(name, ({}, {}), JobSpec("x"), "b", "s", at, slices=slices, **more)


def test_only_multi_slice_tasks_that_may_begin_and_have_no_nodes_are_looked_at():
    """The oldest job first; `min` is enough."""
    submissions = [
        submission("late", (3, 4), 9.0), submission(), submission("one", (1, 1)), submission("held", held=True),
        submission("next", after={"wide": "ok"}),
    ]  # fmt: skip
    slurm_tasks = [SlurmTask("wide", 0, "RUNNING", "1", node="n-[1-2]")]
    found = multi_slice_tasks(submissions, {"late": {0: TaskState.DONE}}, slurm_tasks)
    assert found == (MultiSliceTask("wide", 1, 2), MultiSliceTask("late", 1, 3))
    assert multi_slice_tasks([submission(user="bob")], {}, [], {"bob"}) == ()


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED"])
def test_nothing_moves_while_a_zone_has_enough_nodes(state):
    """Also those that work: their tasks will be over."""
    nodes = [node(1, A, state), node(2, A), node(3, B)]
    assert shortage([TASK], nodes) is None
    assert decide(nodes) == Gathering()


def test_idle_nodes_come_to_where_most_are():
    """Of equals the first zone of the file; one that works stays."""
    assert decide([node(1, A), node(2, B)]) == Gathering(A, ("n-2",))
    assert decide([node(1, B), node(2, B), node(3, A)], MultiSliceTask("w", 0, 3)) == Gathering(B, ("n-3",))
    assert decide([node(1, A), node(2, B, "ALLOCATED")]) == Gathering(A)


def test_a_zone_that_has_just_refused_is_avoided_by_all_nodes_of_a_task():
    """The nodes of the task are replaced together, where there is room; with no such zone, the first one."""
    nodes = [node(1, A), node(2, B)]
    assert decide(nodes, refused={A}) == Gathering(B, ("n-1",))
    assert decide(nodes, refused={A, B}) == Gathering(A, ("n-2",))


def test_a_node_that_is_on_its_way_moves_before_one_that_stands():
    """Once only: then it is bound to that zone."""
    nodes = [node(1, A), node(2, B, "DOWN"), node(3, B)]
    assert decide(nodes) == Gathering(A, ("n-2",))
    assert decide([node(1, A), node(2, B, "DOWN", heading=B)]) == Gathering(B, ("n-1",))
    assert decide([node(1, A), node(2, B, "DOWN", bound_to=A), node(3, B)]) == Gathering(A)
    assert decide([node(1, A), node(2, A, "DOWN", heading=B)], refused={A}) == Gathering(B, ("n-1",))
    assert decide([node(1, A), node(2, "", "DOWN", bound_to=A)], refused={A}).into == B


def test_a_wide_task_waits_a_minute_and_for_enough_nodes():
    """What is on its way may bring a zone; a fleet that is too small is moved nowhere."""
    nodes = [node(1, A), node(2, B)]
    assert decide(nodes, now=59.0) == Gathering()
    assert decide(nodes, since=None) == Gathering()
    assert decide([node(1, A), node(2, B, phase=FleetNodePhase.NONE)]) == Gathering()
    lack = shortage([TASK], nodes)
    assert lack.text == "needs 2 nodes in one zone, and there are: 1 in z-a, 1 in z-b"


def test_a_node_that_has_come_to_its_zone_may_be_anywhere_the_next_time():
    """Also when the task is over before it has come; one that is on its way is left alone."""
    nodes = [node(1, A), node(2, A, bound_to=A), node(3, B, "DOWN", bound_to=A)]
    assert decide(nodes) == Gathering(free=("n-2",))
    assert gather(None, nodes, ZONES, (), LATER, None) == Gathering(free=("n-2",))
