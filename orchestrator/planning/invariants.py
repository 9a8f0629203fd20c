"""
Check a plan before it is carried out, and reject it if it breaks a promise, whatever decided it.

The rules repeat the essence of the decisions in a few lines and share no code with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain import names
from orchestrator.domain.first_seen import Condition, of_name
from orchestrator.domain.observation import Node, NodeState, Present, Unknown, World
from orchestrator.domain.plan import MAKING, Change, Kind, Plan, Verb
from orchestrator.domain.record import TERMINAL, Record
from orchestrator.domain.spec import Spec

GOING = TERMINAL | {NodeState.DELETING}
# Repeated on purpose, not imported from `race`: a wrong value there must not pass here.
MAX_IN_A_RACE = 8


@dataclass(frozen=True)
class BrokenPromise:
    """A promise that a plan would break, and the change that breaks it, both in words."""

    promise: str
    change: str

    @property
    def text(self) -> str:
        """Return both in words."""
        return f"{self.promise}: {self.change}"


def broken(spec: Spec, plan: Plan, world: World, record: Record) -> BrokenPromise | None:
    """Return the promise that the plan would break, with the change that breaks it, or None."""
    return next((BrokenPromise(*found) for found in _all(spec, plan, world, record)), None)


def _all(spec: Spec, plan: Plan, world: World, record: Record) -> Iterator[tuple[str, str]]:
    for change in plan.changes:
        what = f"{change.verb.word} {change.kind.value} {change.name}"
        # The worst mistake: a second machine because the first was only not observed.
        if _unobserved(change, world):
            yield "unknown is not absent", f"{what}, which was not observed"
        if change.kind is Kind.BUCKET and change.verb is Verb.DELETE:
            yield "data stays", what
        if plan.outcome is not None and change.verb in MAKING:
            yield "an ended deployment makes nothing", what
        if change.kind is Kind.NODE and change.verb is Verb.CREATE:
            yield from _second(spec, plan, change, world, record)
            yield from _reused(spec, change, record)
        if change.kind is Kind.VM and _is_theirs(spec, change, world):
            yield "what was adopted is neither made nor deleted", what
        if change.kind is Kind.NODE and change.verb is Verb.DELETE and not _ours(spec, change, world):
            yield "what is not ours is left alone", what


def _is_theirs(spec: Spec, change: Change, world: World) -> bool:
    """Return whether a change creates a VM that the user must provide, or deletes an adopted one."""
    if change.verb is Verb.CREATE:
        return spec.vm != "none" and spec.vm.name is not None
    adopted = isinstance(world.vm, Present) and names.ADOPTED_LABEL in world.vm.value.labels
    return adopted and change.verb is Verb.DELETE


def _unobserved(change: Change, world: World) -> bool:
    """Return whether the change is about a kind of resource that could not be observed."""
    observations = {Kind.NODE: world.nodes, Kind.VM: world.vm, Kind.BUCKET: world.bucket}
    return isinstance(observations.get(change.kind), Unknown)


def _second(
    spec: Spec, plan: Plan, change: Change, world: World, record: Record
) -> Iterator[tuple[str, str]]:
    """Find a second TPU beside the one to create: an observed one, or one in the same plan."""
    gone = {c.name for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.DELETE}
    asked = {o.name for o in record.operations if o.verb is Verb.DELETE}
    for node in world.known_nodes:
        if _competes(change, node, record) or _works_on(spec, change, node, world, record):
            continue
        # A TPU that certainly ends does not count as a second one.
        going = node.state in GOING or of_name(node.name, Condition.DELETION_REQUESTED) in record.first_seen
        if not going and node.name not in gone | asked:
            yield "one TPU, never two", f"create node {change.name} beside {node.name}, {node.state.name}"
    twins = [c for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.CREATE]
    racing = len({c.zone for c in twins}) == len(twins) and len({c.round or c.name for c in twins}) == 1
    runners = [n for n in world.known_nodes if _competes(change, n, record) and n.state not in GOING]
    if len(twins) + len(runners) > (MAX_IN_A_RACE if racing and change.round else 1):
        yield "one TPU, never two", f"create {len(twins)} nodes at once beside {len(runners)}"


def _competes(change: Change, node: Node, record: Record) -> bool:
    """Return whether *node* is in the same race as the TPU to create, and no winner is known."""
    return 0 < change.round == names.round_of(node.labels) and not (
        record.race.claimed and record.race.round == change.round
    )


def _works_on(spec: Spec, change: Change, node: Node, world: World, record: Record) -> bool:
    """
    Return whether *node* may keep working while its successor is created: preempted, or paid for by a deadline.

    The successor must belong to a later race, so that it starts its job only when named the winner.
    """
    if not change.beside or change.on_demand or node.incarnation != record.node.incarnation:
        return False
    going = any(heartbeat.preempted for heartbeat in world.heartbeats_of(node.incarnation))
    sure = record.race.round == 0 or record.race.claimed or record.race.round > node.incarnation
    return sure and change.round > node.incarnation and (going or spec.watch.deadline is not None)


def _reused(spec: Spec, change: Change, record: Record) -> Iterator[tuple[str, str]]:
    """Find a reused name: a lost answer could then be taken for the wrong TPU's."""
    number = change.incarnation or 0
    given = max(
        record.node.highest, record.node.incarnation, *(r.incarnation for r in record.race.candidates), 0
    )
    again = number == record.node.incarnation and not record.node.accepted
    if not (number > given or again) or change.name != names.node_name(spec, number):
        yield (
            "a new name for each TPU",
            f"create node {change.name} after incarnation {record.node.incarnation}",
        )


def _ours(spec: Spec, change: Change, world: World) -> bool:
    """Return whether the node carries our label."""
    found = (node for node in world.known_nodes if node.name == change.name)
    return any(node.labels.get(names.DEPLOYMENT_LABEL) == spec.name for node in found)
