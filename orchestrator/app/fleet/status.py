"""Determine what exists of a fleet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.fleet.sessions import Fleet, for_each
from orchestrator.app.fleet.size import load_of
from orchestrator.app.fleet.usage import fleet_usage
from orchestrator.app.machines.workers import observe
from orchestrator.app.status.status import watcher_of
from orchestrator.contract.node_list import node_list
from orchestrator.domain.observation import Absent, Node, Observed, Present, World
from orchestrator.domain.spec import FleetSpec
from orchestrator.engine.fleet import user_store
from orchestrator.errors import TpuctlError
from orchestrator.planning.fleet.deployments import SlurmController, node_names
from orchestrator.planning.fleet.fleet_cost import Amount
from orchestrator.planning.fleet.size import FleetNodePhase, wanted_nodes
from orchestrator.planning.fleet.tasks import SlurmTask
from orchestrator.pricing.cost import Estimate
from orchestrator.pricing.cost_so_far import cost_so_far


@dataclass(frozen=True)
class FleetNodeRow:
    """One node: the state and zone of its TPU, its state in Slurm, and its task."""

    name: str
    tpu: str
    zone: str
    slurm: str
    task: str


@dataclass(frozen=True)
class UserRow:
    """
    One user: share of the fleet, node seconds so far, tasks, and their cost, from *usd* to *upper_usd*.

    *nodes_max* is None without a limit, *budget_usd* without a budget; *over_budget* says that it is used up.
    """

    user: str
    share: int
    nodes_max: int | None
    node_seconds: float
    tasks_running: int
    tasks_waiting: int
    usd: float
    upper_usd: float
    budget_usd: float | None
    over_budget: bool


@dataclass(frozen=True)
class FleetStatus:
    """
    The state of VM, nodes and queue; *message* is why Slurm did not answer.

    *nodes_requested* exist or are requested, *nodes_wanted* is how many the queue needs (None: unknown).
    The cost so far is from *usd* to *upper_usd*, where the price lists differ; *node_usd_hour* and
    *node_upper_usd_hour* are the price of a node, idle or not, None if unknown. *watcher_on* is where the
    watcher runs: `vm`, `elsewhere`, or "" for nowhere; *watch_on_vm* says that the file wants it on the VM.
    """

    name: str
    vm: str
    nodes: tuple[FleetNodeRow, ...]
    tasks_waiting: int
    tasks_running: int
    usd: float
    upper_usd: float
    message: str
    size: FleetSpec
    nodes_requested: int
    nodes_wanted: int | None
    node_usd_hour: float | None
    node_upper_usd_hour: float | None
    watcher_on: str
    users: tuple[UserRow, ...] = ()
    watch_on_vm: bool = False


def fleet_status(choice: Choice, reporter: Reporter) -> FleetStatus:
    """Return what exists, without changes."""
    fleet = Fleet(choice, reporter, lambda _: Reporter(), only_observes=True)
    world = observe(fleet.head)
    vm = world.vm.value.state.value if isinstance(world.vm, Present) else (
        "none" if isinstance(world.vm, Absent) else "not known"
    )  # fmt: skip
    states: dict[str, str] = {}
    tasks: dict[str, str] = {}
    assert fleet.spec.fleet is not None  # noqa: S101 (what a fleet's file has)
    size = fleet.spec.fleet
    waiting, message, wanted, nowhere = 0, "", None, SlurmController("", fleet.port, "")
    slurm_tasks: tuple[SlurmTask, ...] = ()
    try:
        slurm = fleet.slurm()
        states = slurm.nodes()
        slurm_tasks = slurm.queue()
        for one in slurm_tasks:
            tasks |= dict.fromkeys(node_list(one.node), f"{one.job}/{one.number}")
            waiting += not one.node
        load = load_of(fleet, slurm)
        wanted = wanted_nodes(size, load.waiting, sum(node.has_task for node in load.observations.values()))
    except TpuctlError as error:
        message = error.message
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known())))
    sessions = {name: fleet.node(name, nowhere) for name in names}
    observations = for_each({name: partial(_nodes_of, session) for name, session in sessions.items()})
    costs = [_cost(fleet.head)]
    rows = []
    for name, session in sessions.items():
        state, zone = _tpu(observations[name])
        rows.append(FleetNodeRow(name, state, zone, states.get(name, ""), tasks.get(name, "")))
        costs.append(_cost(session))
    requested = sum(fleet.phase(name) is not FleetNodePhase.NONE for name in names)
    users = (
        tuple(_users(choice, fleet, slurm_tasks, reporter)) if not isinstance(world.bucket, Absent) else ()
    )
    price = fleet.price().node
    return FleetStatus(
        fleet.spec.name, vm, tuple(rows), waiting, len({*tasks.values()}),
        sum(one.known_usd for one in costs), sum(one.upper_usd for one in costs), message,
        size, requested, wanted, price.billed_usd, price.upper_usd,
        _watched_from(fleet.head, world), users, fleet.spec.watch.on_vm,
    )  # fmt: skip


def _users(
    choice: Choice, fleet: Fleet, slurm_tasks: Sequence[SlurmTask], reporter: Reporter
) -> Iterator[UserRow]:
    fleet_users = user_store.read_users(fleet.head.store)
    if not fleet_users.users:
        return
    found, over = fleet_usage(choice, reporter), user_store.over_budget(fleet.head.store)
    for login, user in fleet_users.users.items():
        mine = [one for one in slurm_tasks if one.account == login]
        costs = [
            found.cost.jobs.get(job.submission.name, Amount())
            for job in found.jobs
            if job.submission.user == login
        ]
        running = sum(bool(one.node) for one in mine)
        yield UserRow(
            login, user.share, user.nodes, sum(one.seconds for one in costs), running, len(mine) - running,
            sum(one.usd for one in costs), sum(one.upper_usd for one in costs), user.budget_usd, login in over,
        )  # fmt: skip


def _watched_from(head: Session, world: World) -> str:
    watcher = watcher_of(head, world)
    return watcher.on if watcher and watcher.alive else ""


def _cost(session: Session) -> Estimate:
    return cost_so_far(session.spec, session.catalog, session.records.current, session.clock.now())


def _nodes_of(session: Session) -> Observed[tuple[Node, ...]]:
    return observe(session).nodes


def _tpu(observed: object) -> tuple[str, str]:
    if not isinstance(observed, Present):
        return ("none", "") if isinstance(observed, Absent) else ("not known", "")
    nodes: Sequence[Node] = observed.value
    newest = max(nodes, key=lambda node: node.incarnation or 0, default=None)
    return (newest.state.name, newest.zone) if newest else ("none", "")
