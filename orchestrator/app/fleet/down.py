"""Delete a fleet, or surplus nodes."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.down import Down, take_down
from orchestrator.app.fleet.sessions import EventsOnly, Fleet, for_each
from orchestrator.app.loop.on_vm import stop_on_vm
from orchestrator.app.machines.workers import observe
from orchestrator.domain.observation import Present
from orchestrator.emulator.control import stop_if_idle
from orchestrator.engine.delete import Deletion
from orchestrator.errors import LeftoverError, TpuctlError
from orchestrator.planning.fleet.deployments import SlurmController, node_names, node_spec


def end_node(fleet: Fleet, name: str, slurm_controller: SlurmController) -> Down:
    """Delete one node, as `down` does with any deployment."""
    session = Session(
        fleet.choice, EventsOnly(fleet.reporter_of(name)),
        node_spec(fleet.spec, name, fleet.bucket, slurm_controller), forgiving=True, lists=fleet.lists,
    )  # fmt: skip
    return take_down(fleet.choice, session.reporter, lambda *_: None, session=session)


@dataclass(frozen=True)
class FleetDown:
    """The result for each part; *bucket* is the one whose data stays, "" if none."""

    name: str
    nodes: int
    leftovers: dict[str, str]
    bucket: str
    idle_cloud_stopped: bool = False

    def raise_leftovers(self) -> None:
        """Raise LeftoverError if something is left."""
        if self.leftovers:
            what = "; ".join(f"{name}: {message}" for name, message in self.leftovers.items())
            raise LeftoverError(
                f"left: {what}", hint="run: tpuctl fleet down", changed="everything else is gone"
            )


def fleet_down(
    choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter],
    approve: Callable[[str, bool], None], *, delete_data: bool = False,
) -> FleetDown:  # fmt: skip
    """
    Delete all nodes, then VM and, with *delete_data*, the bucket; lists by label prove each deletion.

    *approve* gets the fleet's name and whether data is deleted, before anything is, and may raise.
    """
    fleet = Fleet(choice, reporter, reporter_of, forgiving=True)
    leftovers, elsewhere = {}, []
    try:
        elsewhere = fleet.in_bucket()
    except TpuctlError as error:
        leftovers[fleet.bucket] = f"which nodes other computers have brought up is not known: {error.message}"
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known(), *elsewhere)))
    reporter.say(f"- the VM and {len(names)} nodes of the fleet {fleet.spec.name}, with all tasks that run")
    reporter.say(
        f"- bucket {fleet.bucket} with all its data" if delete_data else f"  bucket {fleet.bucket} is kept"
    )
    approve(fleet.spec.name, delete_data)
    _end_loop(fleet)
    if fleet.head.records.current.job.bundle:
        # First: from here on no watch, wherever it runs, requests another node.
        with fleet.head.holding_lease("down"):
            Deletion(fleet.head.deployment).begin()
    nowhere = SlurmController("", fleet.port, "")
    ends = for_each({name: partial(end_node, fleet, name, nowhere) for name in names})
    leftovers |= {name: message for name, end in ends.items() if (message := leftovers_of(end))}
    if leftovers:
        # VM and bucket stay while a node still needs them; the next `down` finds all of it again.
        return FleetDown(fleet.spec.name, len(names), leftovers, fleet.bucket)
    head = take_down(choice, reporter, lambda *_: None, delete_data=delete_data, session=fleet.head)
    message = leftovers_of(head)
    if not message and delete_data:
        for name in names:
            shutil.rmtree(fleet.head.folder.parent / name, ignore_errors=True)
    return FleetDown(
        fleet.spec.name, len(names), {fleet.spec.name: message} if message else {}, head.remaining_bucket,
        idle_cloud_stopped=not message and choice.cloud == "local" and stop_if_idle(),
    )  # fmt: skip


def _end_loop(fleet: Fleet) -> None:
    """Stop the loop on the VM first, since it would hold each node's lease for a moment; report a failure."""
    if fleet.spec.watch.on_vm and isinstance(observe(fleet.head).vm, Present):
        try:
            stop_on_vm(fleet.choice, fleet.reporter, fleet.head)
        except TpuctlError as error:
            fleet.reporter.say(f"the loop on the VM was not asked to end: {error.message}", style="warning")


def leftovers_of(end: object) -> str:
    """Return what is left of a node or the VM, or why that is not known; empty when it is gone."""
    if isinstance(end, TpuctlError):
        return end.message
    assert isinstance(end, Down)  # noqa: S101 (what take_down returns)
    return "; ".join(f"{i.title} {i.name} {i.zone} ({i.state})" for i in end.leftovers)
