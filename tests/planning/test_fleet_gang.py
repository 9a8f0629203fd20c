"""Why a task of several slices waits."""

import pytest

from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet import Order, Queued
from orchestrator.planning.fleet_gang import Wide, shortage, wide_tasks
from orchestrator.planning.fleet_size import FleetNode, NodeLife, SlurmNode

A, B = "z-a", "z-b"
TASK = Wide("wide", 0, 2)


def node(number, zone, state="IDLE"):
    """Return a node; one whose state is DOWN is on its way."""
    return FleetNode(f"n-{number}", NodeLife.UP, SlurmNode(frozenset({state}), zone=zone))


def order(name="wide", slices=(2, 2), at=1.0, **more):
    """Return a job of two tasks of several slices."""
    return Order(name, ({}, {}), JobSpec("x"), "b", "s", at, slices=slices, **more)


def test_only_wide_tasks_that_may_begin_and_have_no_nodes_are_looked_at():
    """The oldest job first; `min` is enough."""
    orders = [
        order("late", (3, 4), 9.0), order(), order("one", (1, 1)), order("held", held=True),
        order("next", after={"wide": "ok"}),
    ]  # fmt: skip
    queued = [Queued("wide", 0, "RUNNING", "1_0", node="n-[1-2]")]
    found = wide_tasks(orders, {"late": {0: "done"}}, queued)
    assert found == (Wide("wide", 1, 2), Wide("late", 1, 3))
    assert wide_tasks([order(user="bob")], {}, [], {"bob"}) == ()


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED"])
def test_a_zone_has_enough_nodes_also_when_they_work(state):
    """Their tasks will be over; a node that is down is in no zone."""
    assert shortage([TASK], [node(1, A, state), node(2, A), node(3, B)]) is None
    assert shortage([TASK], [node(1, A), node(2, A, "DOWN"), node(3, B)]) is not None


def test_what_is_missing_is_said_zone_by_zone():
    """The queue shows it."""
    lack = shortage([TASK], [node(1, A), node(2, B)])
    assert lack.text == "needs 2 nodes in one zone, and there are: 1 in z-a, 1 in z-b"
    assert shortage([TASK], []).text == "needs 2 nodes in one zone, and there are: none"
