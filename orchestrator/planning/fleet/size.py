"""
Decide how many nodes a fleet has: more while tasks wait, fewer after nodes have been idle.

Pure. A node to remove is first drained in Slurm, so that no task starts on it, and deleted only when Slurm
then reports no task on it. A kill in between leaves a drained node, which the next pass finds.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.contract.node_list import node_list
from orchestrator.domain.spec import FleetSpec
from orchestrator.planning.fleet.gate import OPEN, gate
from orchestrator.planning.fleet.tasks import SlurmTask, Submission, TaskState, unfinished
from orchestrator.planning.fleet.users import FleetUsers

_WITH_TASK = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))


class FleetNodePhase(Enum):
    """The state of a node's deployment by its record."""

    UP = "up"
    LEAVING = "leaving"
    """Its deletion has started and is not confirmed."""
    NONE = "none"


@dataclass(frozen=True)
class SlurmNode:
    """
    What Slurm says of a node: *states* as in `scontrol show node`; *to_remove* says whose drain it is.

    *busy_ago* is how many seconds before the reading its last task ended; None if not known.
    *zone* is where its machine is, or the last one was; "" before the first one has registered.
    """

    states: frozenset[str] = frozenset()
    to_remove: bool = False
    busy_ago: float | None = None
    zone: str = ""

    @property
    def has_task(self) -> bool:
        """Return whether a task runs or completes on the node."""
        return bool(self.states & _WITH_TASK)

    @property
    def going(self) -> bool:
        """Return whether the node was drained in order to be removed."""
        return "DRAIN" in self.states and self.to_remove


@dataclass(frozen=True)
class FleetNode:
    """
    One node of a fleet; *free_since* is the time since which every pass has shown it without a task.

    *bound_to* is the only zone that its next machine may be in, empty for all of the file; *heading* is where its
    machine was requested last.
    """

    name: str
    phase: FleetNodePhase
    slurm: SlurmNode = SlurmNode()
    free_since: float | None = None
    bound_to: str = ""
    heading: str = ""

    @property
    def has_task(self) -> bool:
        """Return whether a task runs or completes on the node; False if Slurm does not know it."""
        return self.slurm.has_task


@dataclass(frozen=True)
class Resize:
    """
    Say how to change the number of nodes, by node name; *wanted* is the target number.

    *keep* are nodes drained for removal that are needed after all, *start* those to request, *end* those to
    drain and delete.
    """

    wanted: int
    keep: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


def nodes_waited_for(
    submissions: Collection[Submission], ended: Mapping[str, Mapping[int, TaskState]],
    slurm_tasks: Collection[SlurmTask], fleet_users: FleetUsers | None = None,
    over_budget: Collection[str] = (),
) -> int:  # fmt: skip
    """
    Return how many more nodes the startable tasks without a node need; a task may need several.

    Users over budget count for nothing, other users up to the node limit in *fleet_users*.
    """
    known = {submission.name: submission for submission in submissions}
    running = {(one.job, one.number): one.node for one in slurm_tasks if one.node}
    wanted, taken = Counter[str](), Counter[str]()
    for submission in submissions:
        for number in unfinished(submission, ended.get(submission.name, {})):
            if (node := running.get((submission.name, number))) is not None:
                taken[submission.user] += len(node_list(node))
            elif gate(submission, known, ended, over_budget) == OPEN:
                wanted[submission.user] += submission.slices[1]
    for login, user in fleet_users.users.items() if fleet_users else ():
        if user.nodes is not None:
            wanted[login] = min(wanted[login], max(0, user.nodes - taken[login]))
    return wanted.total()


def wanted_nodes(size: FleetSpec, waiting: int, busy: int) -> int:
    """Return the target number of nodes, given tasks that wait for *waiting* nodes and *busy* nodes with a task."""
    idle = size.nodes if size.min_idle is None else size.min_idle
    return min(size.nodes, waiting + busy + idle)


def resize(size: FleetSpec, waiting: int, nodes: Sequence[FleetNode], now: float) -> Resize:
    """
    Return how to change the number of nodes; times in seconds.

    Only nodes that were idle in every pass for `fleet.idle` are removed, so that load which varies faster
    changes nothing. A node that is being created counts as existing.
    """
    wanted = wanted_nodes(size, waiting, sum(node.has_task for node in nodes))
    up = [node for node in nodes if node.phase is FleetNodePhase.UP]
    going = [node for node in up if node.slurm.going]
    there = [node for node in up if not node.slurm.going]
    # A node with a task is never deleted: Slurm may have started the task just before the drain.
    staying = [node for node in going if node.has_task]
    free = [node for node in going if not node.has_task]
    short = max(0, wanted - len(there) - len(staying))
    staying += free[:short]
    leaving = [node for node in nodes if node.phase is FleetNodePhase.LEAVING]
    if size.min_idle is None:
        # A fleet of a fixed size: what is missing or too many is for `fleet up`, which asks first. But one that was
        # taken away to come back in another zone is wanted, also if a watch was killed in between.
        ends = [*free[short:], *(node for node in leaving if node.slurm.going)]
        back = tuple(node.name for node in nodes if node.phase is FleetNodePhase.NONE and node.slurm.going)
        return Resize(wanted, tuple(node.name for node in staying), back, tuple(node.name for node in ends))
    ends = [*free[short:], *leaving]
    start = [node for node in nodes if node.phase is FleetNodePhase.NONE][
        : max(0, wanted - len(there) - len(staying))
    ]
    idle = [(node.free_since, node) for node in there if node.free_since is not None and not node.has_task]
    long_idle = sorted(
        ((since, node) for since, node in idle if now - since >= size.idle),
        # Longest idle first; among equals the last name, because names are assigned from the front.
        key=lambda one: (-one[0], one[1].name), reverse=True,
    )  # fmt: skip
    ends += [node for _, node in long_idle[: max(0, len(there) - wanted)]]
    return Resize(wanted, *(tuple(node.name for node in some) for some in (staying, start, ends)))


def free_since(before: Mapping[str, float], nodes: Mapping[str, SlurmNode], now: float) -> dict[str, float]:
    """Return since when each idle node has been idle, from this reading and the times *before*."""
    found = {}
    for name, node in nodes.items():
        if not node.has_task:
            # Between two passes it may have run a short task, which Slurm remembers.
            busy_at = now - node.busy_ago if node.busy_ago is not None else 0.0
            found[name] = max(before.get(name, now), min(busy_at, now))
    return found


@dataclass(frozen=True)
class Fit:
    """Say how many of *wanted* nodes fit into a project's quota; each node takes *each* of it."""

    wanted: int
    room: int
    each: int

    @property
    def quota_missing(self) -> int:
        """Return how much more quota all nodes need."""
        return max(0, self.wanted - self.room) * self.each


def fit(wanted: int, each: int, limits: Mapping[str, int]) -> Fit:
    """Return how many nodes fit into *limits* by zone; -1 is no limit. Other uses of the quota are not known."""
    if any(limit < 0 for limit in limits.values()):
        return Fit(wanted, wanted, each)
    return Fit(wanted, min(wanted, sum(limit // each for limit in limits.values())), each)


def first_nodes(names: Sequence[str], requested: Collection[str], wanted: int) -> tuple[str, ...]:
    """Return the names that `fleet up` brings up: those already *requested*, then the next ones up to *wanted*."""
    more = [name for name in names if name not in requested][: max(0, wanted - len(requested))]
    return tuple(name for name in names if name in requested or name in more)
