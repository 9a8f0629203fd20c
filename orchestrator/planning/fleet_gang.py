"""
Nodes for tasks of several slices: all slices of a task are in one zone, and nodes come back wherever there is room.

Pure. Slurm gives a task its nodes; what is said here is why it cannot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planning.fleet import Order, Queued, unfinished
from orchestrator.planning.fleet_gate import OPEN, gate
from orchestrator.planning.fleet_size import FleetNode, NodeLife

_ABSENT = frozenset(("DOWN", "UNKNOWN", "FUTURE"))


@dataclass(frozen=True)
class Wide:
    """Name a task that waits for at least *least* nodes in one zone."""

    job: str
    number: int
    least: int


@dataclass(frozen=True)
class Shortage:
    """Hold a task that no zone has enough nodes for, and how many are in each."""

    task: Wide
    there: Mapping[str, int]

    @property
    def text(self) -> str:
        """Say it in words."""
        found = ", ".join(f"{count} in {zone}" for zone, count in sorted(self.there.items())) or "none"
        return f"needs {self.task.least} nodes in one zone, and there are: {found}"


def wide_tasks(
    orders: Iterable[Order], ended: Mapping[str, Mapping[int, str]], queued: Collection[Queued],
    over_budget: Collection[str] = (),
) -> tuple[Wide, ...]:  # fmt: skip
    """Return the tasks of several slices that may begin and have no nodes, the oldest job first."""
    known = {order.name: order for order in orders}
    running = {(one.job, one.number) for one in queued if one.node}
    return tuple(
        Wide(order.name, number, order.slices[0])
        for order in sorted(known.values(), key=lambda one: (one.submitted_at, one.name))
        if order.slices[0] > 1 and gate(order, known, ended, over_budget) == OPEN
        for number in unfinished(order, ended.get(order.name, {}))
        if (order.name, number) not in running
    )


def shortage(tasks: Sequence[Wide], nodes: Iterable[FleetNode]) -> Shortage | None:
    """
    Return the first task that no zone has enough nodes for; None where one has.

    Nodes that have a task count: it will be over.
    """
    there = Counter(node.slurm.zone for node in nodes if _stands(node))
    first = next((one for one in tasks if one.least > max(there.values(), default=0)), None)
    return None if first is None else Shortage(first, dict(there))


def _stands(node: FleetNode) -> bool:
    """Say whether a node is in a zone that Slurm knows, and could have a task."""
    here = node.life is NodeLife.UP and not node.slurm.states & _ABSENT and not node.slurm.going
    return here and bool(node.slurm.zone)
