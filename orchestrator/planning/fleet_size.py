"""
How many nodes a fleet has now: more while tasks wait, fewer when nodes have had nothing to do for long.

Pure. A node that goes is first drained in Slurm, so that no task begins on it, and deleted only when Slurm then
says that it has none. So whatever is killed in between leaves a drained node, which the next look finds.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.contract.node_list import node_list
from orchestrator.domain.spec import FleetSpec
from orchestrator.planning.fleet import Order, Queued, unfinished
from orchestrator.planning.fleet_gate import OPEN, gate
from orchestrator.planning.fleet_team import Team

IDLE_REASON = "tpuctl-idle-g"
"""Why Slurm has drained a node that goes, with the incarnation that it is said of; slurm.sh knows it too."""
_WITH_TASK = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))


class NodeLife(Enum):
    """Name what a node's record says of it."""

    UP = "up"
    LEAVING = "leaving"
    """Its deletion has begun, and nobody has seen its end."""
    NONE = "none"


@dataclass(frozen=True)
class SlurmNode:
    """
    Hold what Slurm says of a node: *states* as `scontrol show node` names them, and why it is drained.

    *busy_ago* is how many seconds before the look its last task ended; None when that is not known.
    """

    states: frozenset[str] = frozenset()
    reason: str = ""
    busy_ago: float | None = None

    @property
    def has_task(self) -> bool:
        """Say whether a task runs, or ends, there."""
        return bool(self.states & _WITH_TASK)

    @property
    def going(self) -> bool:
        """Say whether it was drained because it had nothing to do."""
        return "DRAIN" in self.states and self.reason.startswith(IDLE_REASON)


@dataclass(frozen=True)
class FleetNode:
    """Hold one node of a fleet; *free_since* is since when each look has shown it without a task."""

    name: str
    life: NodeLife
    slurm: SlurmNode = SlurmNode()
    free_since: float | None = None

    @property
    def has_task(self) -> bool:
        """Say whether it has a task."""
        return self.slurm.has_task


@dataclass(frozen=True)
class Resize:
    """
    Say what to do about the number of nodes, by their names, and how many are *wanted* now.

    *keep* are nodes that were drained to go and are wanted after all, *start* those to ask for, *end* those to
    drain and delete.
    """

    wanted: int
    keep: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


def nodes_missing(
    orders: Collection[Order], ended: Mapping[str, Mapping[int, str]], queued: Collection[Queued],
    team: Team | None = None, over_budget: Collection[str] = (),
) -> int:  # fmt: skip
    """
    Return how many nodes the tasks want that may begin and have none in Slurm; a task may want several.

    A user whose budget is spent wants none, and nobody more than the limit of nodes in *team* leaves.
    """
    known = {order.name: order for order in orders}
    running = {(one.job, one.number): one.node for one in queued if one.node}
    wanted, taken = Counter[str](), Counter[str]()
    for order in orders:
        for number in unfinished(order, ended.get(order.name, {})):
            if (node := running.get((order.name, number))) is not None:
                taken[order.user] += len(node_list(node))
            elif gate(order, known, ended, over_budget) == OPEN:
                wanted[order.user] += order.slices[1]
    for login, user in team.users.items() if team else ():
        if user.nodes is not None:
            wanted[login] = min(wanted[login], max(0, user.nodes - taken[login]))
    return wanted.total()


def wanted_nodes(size: FleetSpec, waiting: int, busy: int) -> int:
    """Return how many nodes there should be while tasks wait for *waiting* ones and *busy* ones have a task."""
    idle = size.nodes if size.min_idle is None else size.min_idle
    return min(size.nodes, waiting + busy + idle)


def resize(size: FleetSpec, waiting: int, nodes: Sequence[FleetNode], now: float) -> Resize:
    """
    Return what to do about the number of nodes. Times are in seconds.

    Only nodes that were free in every look for `fleet.idle` go, so load that comes and goes faster than that
    changes nothing. A node that is on its way counts as one that is there.
    """
    wanted = wanted_nodes(size, waiting, sum(node.has_task for node in nodes))
    up = [node for node in nodes if node.life is NodeLife.UP]
    going = [node for node in up if node.slurm.going]
    there = [node for node in up if not node.slurm.going]
    # One with a task is never deleted: it was drained in the moment in which Slurm gave it the task.
    staying = [node for node in going if node.has_task]
    free = [node for node in going if not node.has_task]
    short = max(0, wanted - len(there) - len(staying))
    staying += free[:short]
    leaving = [node for node in nodes if node.life is NodeLife.LEAVING]
    if size.min_idle is None:
        # A fleet of a fixed size: what is missing or too many is for `fleet up`, which asks first.
        ends = [*free[short:], *(node for node in leaving if node.slurm.going)]
        return Resize(wanted, tuple(node.name for node in staying), (), tuple(node.name for node in ends))
    ends = [*free[short:], *leaving]
    start = [node for node in nodes if node.life is NodeLife.NONE][
        : max(0, wanted - len(there) - len(staying))
    ]
    idle = [(node.free_since, node) for node in there if node.free_since is not None and not node.has_task]
    long_idle = sorted(
        ((since, node) for since, node in idle if now - since >= size.idle),
        # The longest first, and of equals the last one: names are taken from the front.
        key=lambda one: (-one[0], one[1].name), reverse=True,
    )  # fmt: skip
    ends += [node for _, node in long_idle[: max(0, len(there) - wanted)]]
    return Resize(wanted, *(tuple(node.name for node in some) for some in (staying, start, ends)))


def free_since(before: Mapping[str, float], nodes: Mapping[str, SlurmNode], now: float) -> dict[str, float]:
    """Return since when each node without a task has had none, as far as this and the looks *before* show."""
    found = {}
    for name, node in nodes.items():
        if not node.has_task:
            # Between two looks it may have had a short task, which Slurm remembers.
            busy_at = now - node.busy_ago if node.busy_ago is not None else 0.0
            found[name] = max(before.get(name, now), min(busy_at, now))
    return found


@dataclass(frozen=True)
class Fit:
    """Say how many of *wanted* nodes a project's quota has room for, each of which takes *each* of it."""

    wanted: int
    room: int
    each: int

    @property
    def missing(self) -> int:
        """Return how much more quota all nodes need."""
        return max(0, self.wanted - self.room) * self.each


def fit(wanted: int, each: int, limits: Mapping[str, int]) -> Fit:
    """Return how many nodes fit into *limits*, by zone; -1 is no limit. What else uses the quota is not known."""
    if any(limit < 0 for limit in limits.values()):
        return Fit(wanted, wanted, each)
    return Fit(wanted, min(wanted, sum(limit // each for limit in limits.values())), each)


def first_nodes(names: Sequence[str], up: Collection[str], wanted: int) -> tuple[str, ...]:
    """Return the nodes that `fleet up` brings up: those that are *up* already, and others until it is enough."""
    missing = [name for name in names if name not in up][: max(0, wanted - len(up))]
    return tuple(name for name in names if name in up or name in missing)
