"""Bring up a fleet: VM, Slurm and all nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.fleet.down import end_node, leftovers_of
from orchestrator.app.fleet.sessions import EventsOnly, Fleet, FleetPrice, for_each
from orchestrator.app.fleet.usage import UsageReader, reckon
from orchestrator.app.up import bring_up
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.errors import (
    TpuctlError,
)
from orchestrator.planning.fleet.deployments import SlurmController, node_names
from orchestrator.planning.fleet.size import FleetNodePhase, first_nodes, nodes_waited_for, wanted_nodes
from orchestrator.planning.fleet.users import users_of


@dataclass(frozen=True)
class FleetUp:
    """
    Which nodes are up, why others are not, and why those stay that are too many.

    *nodes_not_up* has the error of each wanted node that is not up, *nodes_surplus* what is left of each node that
    should have been deleted.
    """

    name: str
    bucket: str
    nodes_up: tuple[str, ...]
    nodes_not_up: dict[str, TpuctlError]
    on_vm: bool
    nodes_surplus: dict[str, str] = field(default_factory=dict)


def fleet_up(
    choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter],
    show_price: Callable[[FleetPrice], None],
) -> FleetUp:  # fmt: skip
    """
    Bring up VM, Slurm and all nodes in parallel; what is right stays.

    *show_price* is called before anything is created and may raise. Surplus nodes are deleted. With
    `fleet.min_idle` there are as many nodes as the queue needs now.
    """
    fleet = Fleet(choice, reporter, lambda name: EventsOnly(reporter_of(name)))
    show_price(fleet.price())
    fleet.write_code()
    bring_up(choice, reporter, session=fleet.head)
    # From here on it applies to all users, and to a watch on another computer.
    user_store.write_users(fleet.head.cloud.store, users_of(fleet.spec.fleet))
    reporter.say("Starting Slurm on the VM; if it is not there yet, it is installed first")
    slurm_controller = fleet.start_slurm()
    reporter.say(f"Slurm's controller runs on the VM at {slurm_controller.address}:{slurm_controller.port}")
    names = node_names(fleet.spec)
    surplus = _end_surplus(fleet, names, slurm_controller)
    wanted = _wanted(fleet, names)
    sessions = {name: fleet.node(name, slurm_controller) for name in wanted}
    found = for_each(
        {name: partial(bring_up, choice, one.reporter, session=one) for name, one in sessions.items()}
    )
    reckon(UsageReader(choice, reporter))
    slurm = fleet.slurm()
    for name, held in slurm.node_states().items():
        # A killed watch had started to drain it.
        if held.going and name in wanted:
            slurm.undrain(name)
    for error in fleet.submit_missing(slurm).values():
        reporter.say(f"{error.message}; {error.next_step}", style="warning")
    not_up = {name: error for name, error in found.items() if isinstance(error, TpuctlError)}
    up = tuple(name for name in wanted if name not in not_up)
    return FleetUp(fleet.spec.name, fleet.bucket, up, not_up, fleet.spec.watch.on_vm, surplus)


def _end_surplus(fleet: Fleet, names: tuple[str, ...], slurm_controller: SlurmController) -> dict[str, str]:
    """Delete the nodes that are too many, whatever computer has brought them up; return those that stay."""
    known = fleet.known()
    others = [*known, *(name for name in fleet.in_bucket() if name not in known and fleet.there(name))]
    many = [name for name in others if name not in names]
    # One that another computer watches stays, and is named: the rest of `up` does not wait for it.
    ends = for_each({name: partial(end_node, fleet, name, slurm_controller) for name in many})
    return {name: message for name, end in ends.items() if (message := leftovers_of(end))}


def _wanted(fleet: Fleet, names: tuple[str, ...]) -> tuple[str, ...]:
    assert fleet.spec.fleet is not None  # noqa: S101 (what a fleet's file has)
    submissions = job_store.read_all(fleet.head.store).jobs
    ended, over = job_store.all_ended(fleet.head.store, submissions), user_store.over_budget(fleet.head.store)
    waiting = nodes_waited_for(submissions, ended, (), users_of(fleet.spec.fleet), over)
    requested = [name for name in names if fleet.phase(name) is not FleetNodePhase.NONE]
    return first_nodes(names, requested, wanted_nodes(fleet.spec.fleet, waiting, 0))
