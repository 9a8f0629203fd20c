"""Grow and shrink a fleet with its queue."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from orchestrator import threads
from orchestrator.app.fleet.down import end_node
from orchestrator.app.fleet.sessions import AT_ONCE, Fleet
from orchestrator.app.up import record_for_the_watch
from orchestrator.contract.node_list import node_list
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error
from orchestrator.planning.fleet.deployments import SlurmController, node_names
from orchestrator.planning.fleet.multi_slice import (
    REFUSAL_COUNTS,
    MultiSliceTask,
    gather,
    multi_slice_tasks,
    shortage,
)
from orchestrator.planning.fleet.size import (
    FleetNode,
    FleetNodePhase,
    SlurmNode,
    free_since,
    nodes_waited_for,
    resize,
)


class FleetNodesWatch(Protocol):
    """A watch of nodes, each as a deployment of its own."""

    def follow(self, path: Path) -> None:
        """Also watch the node whose spec is stored at *path*."""

    def leave(self, name: str) -> None:
        """Stop watching a node and release its lease."""


@dataclass(frozen=True)
class Load:
    """For how many nodes tasks wait, how each node is, and which *tasks* of several slices have none."""

    waiting: int
    observations: dict[str, SlurmNode]
    tasks: tuple[MultiSliceTask, ...]
    multi_slice: bool


class Sizing:
    """Changes the number of nodes to match the queue, with at most one action per node at a time."""

    def __init__(self, fleet: Fleet, watch: FleetNodesWatch) -> None:
        self._fleet, self._watch = fleet, watch
        self._pool, self._lock = threads.pool(AT_ONCE), threading.Lock()
        self._busy: set[str] = set()
        self._free: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._wanted: int | None = None
        self._short_since: float | None = None
        self._refused: dict[str, float] = {}
        self._moves = ""
        fleet.write_code()

    def observe(self, slurm: Slurm) -> None:
        """
        Start what the queue needs now.

        Raise TpuctlError, with no changes, if Slurm or bucket does not answer.
        """
        fleet = self._fleet
        if not (started_at := fleet.started_at()):
            return
        now = fleet.head.clock.now()
        load = load_of(fleet, slurm)
        waiting, observations = load.waiting, load.observations
        self._free = free_since(self._free, observations, now)
        with self._lock:
            busy = set(self._busy)
        # A node that Slurm does not know cannot start a task. One that is being created counts as up, which
        # is right; one that is being deleted counts for a minute only.
        nodes = [
            FleetNode(
                name,
                FleetNodePhase.UP if name in busy else fleet.phase(name),
                observations[name],
                self._free.get(name),
                *((fleet.bound_to(name), fleet.heading(name)) if load.multi_slice else ()),
            )
            for name in node_names(fleet.spec)
            if name in observations
        ]
        assert fleet.spec.fleet is not None  # noqa: S101 (what a fleet's file has)
        what = resize(fleet.spec.fleet, waiting, nodes, now)
        if (what.start or what.end) and what.wanted != self._wanted:
            fleet.reporter.say(
                f"{what.wanted} of at most {len(nodes)} nodes are wanted: {waiting} tasks wait"
            )
        self._wanted = what.wanted
        work: dict[str, Callable[[], object]] = {name: partial(self._keep, name) for name in what.keep}
        work |= {name: partial(self._start, name, started_at) for name in what.start}
        work |= {name: partial(self._end, name) for name in what.end}
        for name, zone in self._gather(load, nodes, now).items():
            work.setdefault(name, partial(self._move, name, zone, started_at))
        for name, call in work.items():
            if name not in busy:
                self._do(name, call)

    def _gather(self, load: Load, nodes: Sequence[FleetNode], now: float) -> dict[str, str]:
        """Return the nodes that have to be in another zone for tasks of several slices, with that zone."""
        fleet, zones = self._fleet, self._fleet.spec.tpu.zones
        if len(zones) == 1:
            return {}
        lack = shortage(load.tasks, nodes)
        if lack is None:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        for node in nodes if lack is not None else ():
            # Kept here: with a node that moves, its record forgets them.
            self._refused.update(fleet.refusals(node.name))
        refused = {zone for zone, at in self._refused.items() if now - at < REFUSAL_COUNTS}
        what = gather(lack, nodes, zones, refused, now, self._short_since)
        moves = f"{', '.join(what.move)} to {what.into}"
        if what.move and lack is not None and moves != self._moves:
            fleet.reporter.say(f"{lack.task.job}/{lack.task.number} {lack.text}: {moves}")
        self._moves = moves
        return dict.fromkeys(what.move, what.into) | dict.fromkeys(what.free, "")

    def end(self) -> None:
        """Start nothing more, and wait for what has started."""
        self._pool.shutdown(cancel_futures=True)

    def _do(self, name: str, call: Callable[[], object]) -> None:
        """Do it beside everything else; the next pass sees what became of it."""
        with self._lock:
            self._busy.add(name)

        def done(_: Future[None]) -> None:
            with self._lock:
                self._busy.discard(name)

        self._pool.submit(self._safely, name, call).add_done_callback(done)

    def _safely(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (*PASS_ERRORS, OSError) as caught:
            # Any error: the next pass finds the node's actual state.
            message = as_error(caught).message
            if self._said.get(name) != message:
                self._fleet.reporter.say(f"{name}: {message}", style="warning")
            self._said[name] = message
        else:
            self._said.pop(name, None)

    def _keep(self, name: str) -> None:
        self._fleet.slurm().undrain(name)

    def _start(self, name: str, started_at: float, zone: str = "") -> None:
        session = self._fleet.node(name, self._fleet.slurm_controller(), zone)
        # `down` first records that the fleet is ending, then takes each node's lease: one of us notices the other.
        last = session.records.current.node.incarnation
        if record_for_the_watch(session, started_at, lambda: bool(self._fleet.started_at())):
            self._watch.follow(self._fleet.path_of(name))
            if last:
                # Else Slurm would take it back like a node that stays, and start a task on a deleted machine.
                self._fleet.slurm().returning(name, last)

    def _end(self, name: str, message: str = "has nothing to do and is deleted") -> bool:
        """Delete a node, unless it has got a task meanwhile; return whether it is gone."""
        # From here on no pass asks for another machine of this name, whose Slurm would lift the mark.
        self._watch.leave(name)
        try:
            session = self._fleet.node(name, SlurmController("", 0, ""))
            held = self._fleet.slurm().drain(name, session.records.current.node.incarnation)
            if not held.going or held.has_task:
                self._fleet.slurm().undrain(name)
                return False
            self._fleet.reporter.say(f"{name} {message}")
            # Once it has begun, the record says so; what is left then the next pass deletes.
            end_node(self._fleet, name, SlurmController("", 0, ""))
            session = self._fleet.node(name, SlurmController("", 0, ""))
            session.upper_cost(session.records.current, session.clock.now())
            return self._fleet.phase(name) is FleetNodePhase.NONE
        finally:
            if self._fleet.phase(name) is FleetNodePhase.UP:
                self._watch.follow(self._fleet.path_of(name))

    def _move(self, name: str, zone: str, started_at: float) -> None:
        """Let a node come back in *zone*; without one, let its next machine be in any zone, and keep this one."""
        if zone:
            if self._end(name, f"moves to {zone}"):
                # Killed in between, the mark in Slurm says that it is wanted back.
                self._start(name, started_at, zone)
            return
        self._watch.leave(name)
        try:
            session = self._fleet.node(name, self._fleet.slurm_controller())
            record_for_the_watch(session, started_at, lambda: bool(self._fleet.started_at()))
        finally:
            if self._fleet.phase(name) is FleetNodePhase.UP:
                self._watch.follow(self._fleet.path_of(name))


def load_of(fleet: Fleet, slurm: Slurm) -> Load:
    """Return what tasks want, and how each node is. Raise TpuctlError when either is not known."""
    # The tasks of a job that cannot be read ask for no node: how many there are is unknown.
    submissions = job_store.read_all(fleet.head.store).jobs
    # In this order: what begins or ends in between is counted once at most, so no node is requested in vain.
    observations = slurm.node_states()
    slurm_tasks = slurm.queue()
    ended = job_store.all_ended(fleet.head.store, submissions)
    taken = {name for one in slurm_tasks for name in node_list(one.node)}
    observations = {
        name: replace(node, states=node.states | {"ALLOCATED"}) if name in taken else node
        for name, node in observations.items()
    }
    fleet_users, over = user_store.read_users(fleet.head.store), user_store.over_budget(fleet.head.store)
    return Load(
        nodes_waited_for(submissions, ended, slurm_tasks, fleet_users, over), observations,
        multi_slice_tasks(submissions, ended, slurm_tasks, over),
        any(submission.slices[1] > 1 for submission in submissions),
    )  # fmt: skip
