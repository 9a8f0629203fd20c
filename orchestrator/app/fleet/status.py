"""Say what exists of a fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.app.choice import Choice
from orchestrator.app.fleet.sessions import Fleet, for_each
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.workers import look
from orchestrator.contract.node_list import node_list
from orchestrator.domain.observation import Absent, Node, Present, Sight
from orchestrator.errors import (
    TpuctlError,
)
from orchestrator.planning.fleet import Controller, node_names


@dataclass(frozen=True)
class NodeRow:
    """Say of one node: the state and zone of its TPU, what Slurm says of it, and which task it has."""

    name: str
    tpu: str
    zone: str
    slurm: str
    task: str


@dataclass(frozen=True)
class FleetStatus:
    """Hold the state of VM, nodes and queue; *trouble* is why Slurm did not answer."""

    name: str
    vm: str
    nodes: tuple[NodeRow, ...]
    waiting: int
    running: int
    usd: float
    trouble: str


def fleet_status(choice: Choice, reporter: Reporter) -> FleetStatus:
    """Return what exists; nothing is changed."""
    fleet = Fleet(choice, reporter, lambda _: Reporter(), only_looks=True)
    world = look(fleet.head)
    vm = world.vm.value.state.value if isinstance(world.vm, Present) else (
        "none" if isinstance(world.vm, Absent) else "not known"
    )  # fmt: skip
    states: dict[str, str] = {}
    tasks: dict[str, str] = {}
    waiting, trouble, nowhere = 0, "", Controller("", fleet.port, "")
    try:
        slurm = fleet.slurm()
        states = slurm.nodes()
        for one in slurm.queue():
            tasks |= dict.fromkeys(node_list(one.node), f"{one.job}/{one.number}")
            waiting += not one.node
    except TpuctlError as error:
        trouble = error.message
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known())))
    sessions = {name: fleet.node(name, nowhere) for name in names}
    sights = for_each({name: partial(_nodes_of, session) for name, session in sessions.items()})
    usd = fleet.head.cost(fleet.head.records.current, fleet.head.clock.now())
    rows = []
    for name, session in sessions.items():
        state, zone = _tpu(sights[name])
        rows.append(NodeRow(name, state, zone, states.get(name, ""), tasks.get(name, "")))
        usd += session.cost(session.records.current, session.clock.now())
    return FleetStatus(fleet.spec.name, vm, tuple(rows), waiting, len({*tasks.values()}), usd, trouble)


def _nodes_of(session: Session) -> Sight[tuple[Node, ...]]:
    return look(session).nodes


def _tpu(sights: object) -> tuple[str, str]:
    if not isinstance(sights, Present):
        return ("none", "") if isinstance(sights, Absent) else ("not known", "")
    nodes: Sequence[Node] = sights.value
    newest = max(nodes, key=lambda node: node.incarnation or 0, default=None)
    return (newest.state.name, newest.zone) if newest else ("none", "")
