"""The last look at a plan: each promise, a plan that would break it, and one beside it that does not."""

from dataclasses import replace

import pytest

from orchestrator.domain import names
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Change, Kind, Outcome, Plan, Verb
from orchestrator.planning.decide import decide
from orchestrator.planning.invariants import broken
from tests.kit.records import changed
from tests.planning.worlds import NOW, ZONE, node, record, spec, world

FOREIGN = world(nodes=Present((node(labels={}),)))
LABELS = names.labels(spec(), "tpu", 1)
OURS = node(labels=LABELS)
ONE = world(nodes=Present((OURS,)))
NONE = world(nodes=Present(()))
FRESH = record(incarnation=1, accepted=True)


def make(number, kind=Kind.NODE, verb=Verb.CREATE, name=""):
    """Return a change about the node of one incarnation, or about another kind."""
    return Change(kind, verb, name or f"demo-tpu-g{number}", "a test", ZONE, number)


REMOVE = make(1, verb=Verb.DELETE)
CASES = {
    "two at once": ("one TPU", Plan((make(2), make(2))), NONE, FRESH),
    "beside one that runs": ("one TPU", Plan((make(2),)), ONE, FRESH),
    "a name of long ago": ("a new name", Plan((make(1),)), NONE, record(incarnation=2)),
    "the name of the present one": ("a new name", Plan((make(1),)), NONE, FRESH),
    "another name": ("a new name", Plan((make(2, name="demo-tpu"),)), NONE, FRESH),
    "nodes unseen": ("unknown", Plan((make(2),)), world(nodes=Unknown("503")), FRESH),
    "a vm unseen": ("unknown", Plan((make(0, Kind.VM, Verb.START),)), world(vm=Unknown("503")), FRESH),
    "a node of a stranger": ("what is not ours", Plan((REMOVE,)), FOREIGN, FRESH),
    "a node not listed": ("what is not ours", Plan((REMOVE,)), NONE, FRESH),
    "the bucket": ("data stays", Plan((make(0, Kind.BUCKET, Verb.DELETE),)), ONE, FRESH),
    "after the end": (
        "an ended deployment", Plan((make(0, Kind.VM, Verb.START),), outcome=Outcome.LIMIT_REACHED), ONE, FRESH),
}  # fmt: skip
"""What is wrong -> the promise, and a plan that would break it in that world."""

FINE = {
    "replaced in one plan": (Plan((REMOVE, make(2))), ONE, FRESH),
    "beside one that is preempted": (
        Plan((make(2),)), world(nodes=Present((replace(OURS, state=NodeState.PREEMPTED),))), FRESH),
    "beside one whose deletion was asked for": (
        Plan((make(2),)), ONE, changed(FRESH, first_seen={f"deleting:{OURS.name}": NOW})),
    "asked for again by its own name": (Plan((make(1),)), NONE, changed(FRESH, accepted=False)),
    "the end": (Plan((REMOVE, make(0, Kind.VM, Verb.STOP)), outcome=Outcome.DONE), ONE, FRESH),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_plan_that_breaks_a_promise_is_found(name):
    """The text names the promise and the change."""
    promise, plan, observed, known = CASES[name]
    assert broken(spec(), plan, observed, known).text.startswith(promise)


@pytest.mark.parametrize("name", FINE)
def test_a_plan_that_breaks_none_passes(name):
    """What recovery needs is let through."""
    assert broken(spec(), *FINE[name]) is None


def test_what_is_decided_in_an_empty_world_passes():
    """The first pass makes everything."""
    empty = world(nodes=Present(()))
    assert broken(spec(), decide(spec(), empty, record(incarnation=0)), empty, record(incarnation=0)) is None
