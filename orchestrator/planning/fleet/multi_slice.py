"""
Nodes for tasks of several slices: all slices of a task are in one zone, and nodes come back wherever there is room.

Pure. Slurm gives a task its nodes; what is decided here is which nodes go to another zone when no zone has enough
of them. A node goes there as one that is too many goes: drained first, so no task that runs loses its node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planning.fleet.gate import OPEN, gate
from orchestrator.planning.fleet.size import FleetNode, FleetNodePhase
from orchestrator.planning.fleet.tasks import SlurmTask, Submission, TaskState, unfinished

MOVE_AFTER = 60.0
"""Seconds for which a task has had no zone before a node is moved: nodes that are on their way may bring one."""
REFUSAL_COUNTS = 600.0
"""Seconds for which a zone that has refused a node is no zone to gather nodes in, if there is another one."""
_ABSENT = frozenset(("DOWN", "UNKNOWN", "FUTURE"))


@dataclass(frozen=True)
class MultiSliceTask:
    """A task that waits for at least *least* nodes in one zone."""

    job: str
    number: int
    least: int


@dataclass(frozen=True)
class Shortage:
    """A task that no zone has enough nodes for, and how many are in each."""

    task: MultiSliceTask
    there: Mapping[str, int]

    @property
    def text(self) -> str:
        """Return why the task waits, for its user."""
        found = ", ".join(f"{count} in {zone}" for zone, count in sorted(self.there.items())) or "none"
        return f"needs {self.task.least} nodes in one zone, and there are: {found}"


@dataclass(frozen=True)
class Gathering:
    """Say which nodes have to be in the zone *into*, by their names, and whose spec may name all zones again."""

    into: str = ""
    move: tuple[str, ...] = ()
    free: tuple[str, ...] = ()


def multi_slice_tasks(
    submissions: Iterable[Submission], ended: Mapping[str, Mapping[int, TaskState]],
    slurm_tasks: Collection[SlurmTask],
    over_budget: Collection[str] = (),
) -> tuple[MultiSliceTask, ...]:  # fmt: skip
    """Return the tasks of several slices that may begin and have no nodes, the oldest job first."""
    known = {submission.name: submission for submission in submissions}
    running = {(one.job, one.number) for one in slurm_tasks if one.node}
    return tuple(
        MultiSliceTask(submission.name, number, submission.slices[0])
        for submission in sorted(known.values(), key=lambda one: (one.submitted_at, one.name))
        if submission.slices[0] > 1 and gate(submission, known, ended, over_budget) == OPEN
        for number in unfinished(submission, ended.get(submission.name, {}))
        if (submission.name, number) not in running
    )


def shortage(tasks: Sequence[MultiSliceTask], nodes: Iterable[FleetNode]) -> Shortage | None:
    """
    Return the first task that no zone has enough nodes for; None where one has.

    Nodes that have a task count: it will be over.
    """
    there = Counter(node.slurm.zone for node in nodes if _stands(node))
    first = next((one for one in tasks if one.least > max(there.values(), default=0)), None)
    return None if first is None else Shortage(first, dict(there))


def gather(
    lack: Shortage | None, nodes: Sequence[FleetNode], zones: Sequence[str], refused: Collection[str],
    now: float, since: float | None,
) -> Gathering:  # fmt: skip
    """
    Return what to do about a task that has no zone *since* some time.

    The nodes come together where most of them are or will be, except in a zone that has just *refused* one; of
    equals where one is on its way to, for that zone was chosen by what is known now. First those move that are on
    their way, then those that have nothing to do; one that works stays until its task is over.
    """
    # Its zone was for one task: the next machine of the name may be anywhere again.
    free = tuple(node.name for node in nodes if node.bound_to and _stands(node))
    if lack is None or since is None or now - since < MOVE_AFTER:
        return Gathering(free=free if lack is None else ())
    up = [node for node in nodes if node.phase is FleetNodePhase.UP]
    if len(up) < lack.task.least:
        return Gathering()
    able = [zone for zone in zones if zone not in refused] or zones
    coming = [node for node in up if not _stands(node)]
    aims = Counter(node.bound_to or node.heading for node in coming)
    into = max(
        able, key=lambda zone: (lack.there.get(zone, 0) + aims[zone], aims[zone] > 0, -zones.index(zone))
    )
    idle = [node for node in up if _stands(node) and not node.has_task and node.slurm.zone != into]
    near = [node for node in coming if into == (node.bound_to or node.heading)]
    missing = lack.task.least - lack.there.get(into, 0) - len(near)
    movable = [node for node in coming if node not in near] + idle
    return Gathering(into, tuple(node.name for node in movable[: max(0, missing)]))


def _stands(node: FleetNode) -> bool:
    """Return whether a node is in a zone that Slurm knows, and could have a task."""
    here = node.phase is FleetNodePhase.UP and not node.slurm.states & _ABSENT and not node.slurm.going
    return here and bool(node.slurm.zone)
