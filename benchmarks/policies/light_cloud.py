"""
A light stand-in for the cloud, the bucket and the clock, on which the real loop runs in a replay.

Its clock jumps. While nothing can change before the next event of the market, whole polls are jumped over.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from benchmarks.policies.ledger import ReplayLedger
from orchestrator.contract.bucket import object_names
from orchestrator.contract.phase import Phase
from orchestrator.domain import names
from orchestrator.domain.catalog import Price
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.node_price import Prices
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Node,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Worker,
    World,
)
from orchestrator.domain.plan import Kind, Plan, Verb
from orchestrator.domain.ports import NewNode, StoredObject
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.bucket import race_claim
from orchestrator.errors import Retry
from orchestrator.planning.tpu.next_zone import create_gate

EPOCH = 1.7e9
"""The time at which a replay begins, since 0 means "never" to the record."""
SAVED = 2.0
"""Seconds between the end of the last save and the report that it is committed."""
POLL = 300.0
"""Seconds between two looks at a job with a deadline."""


@dataclass
class LightNode:
    """Hold one node that was asked for and its fate: READY and dead later, or refused."""

    name: str
    zone: str
    incarnation: int
    asked: float
    taken: bool
    ready: float
    death: float
    labels: Mapping[str, str]
    spot: bool = True
    deleted: float | None = None
    booked: bool = False


class LightCloud:
    """
    Stand for the cloud, the bucket and the clock of one deployment.

    With `job.target_steps` its job ends: a step is a second of work.
    """

    def __init__(self, ledger: ReplayLedger, spec: Spec) -> None:
        self.ledger = ledger
        self.spec = spec
        self.places = {zone_name(zone): index for index, zone in enumerate(ledger.market.trace.zones)}
        self.time = 0.0
        self.jumped = 0.0
        self.quiet = 0.0
        self.machines: list[LightNode] = []
        self.claims: dict[str, bytes] = {}
        self.work = float(spec.job.target_steps or 0)
        self.done = 0.0
        self.finished = False
        self._prices = (-1, Prices())
        self.nodes = self.store = self.capacity_store = self.vms = self

    # The clock.

    def now(self) -> float:
        """Return the time of day."""
        return EPOCH + self.time

    def monotonic(self) -> float:
        """Return the time that pauses are measured with; jumps do not count, so the polls keep their phase."""
        return self.time - self.jumped

    def see(self, plan: Plan, record: Record) -> None:
        """Learn for how long the loop will do nothing, whatever it sees in vain meanwhile."""
        self.quiet = 0.0
        visible = any(m.incarnation == record.node.incarnation for m in self.machines)
        doubtful = record.node.requested_at > 0 and not visible
        if plan.changes or doubtful or any(self._rings(m) for m in self.machines):
            return
        gates = [create_gate(self.spec, record, zone) - EPOCH for zone in self.places]
        coming = [at for m in self.machines for at in (m.ready, self._gone_at(m), self._first_step(m))]
        # A job with a deadline may be acted on although nothing has happened.
        next_poll = self.time + POLL if self.work else float("inf")
        later = (at for at in (*gates, *coming, next_poll) if at > self.time)
        self.quiet = min(later, default=float("inf")) - self.time

    def _gone_at(self, machine: LightNode) -> float:
        return 0.0 if machine.deleted is None else machine.deleted + self.ledger.market.latency.delete

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Let time pass, and whole polls more while nothing can happen."""
        if self.quiet:
            poll = min(seconds, float(self.spec.watch.poll))
            quiet = min(self.quiet, self._next_event() - self.time) - seconds
            far = max(0.0, quiet // poll * poll)
            self.time += far
            self.jumped += far
        self.time += seconds

    def _next_event(self) -> float:
        """Return when the next notice or death of a machine is due."""
        notice = self.ledger.market.latency.notice if self.ledger.noticed else 0.0
        ends = (m.death - notice for m in self.machines if m.taken)
        done = (self._done_at(m) for m in self.machines if m.taken) if self.work else ()
        return min((*ends, *done), default=float("inf"))

    def _done_at(self, machine: LightNode) -> float:
        """Return when the job would be done on a machine that trains on: saves are not counted."""
        at = self._first_step(machine) + self.work - self.done
        return at if at > self.time else float("inf")

    # The TPU adapter.

    def create(self, new: NewNode) -> Operation:
        """Ask the market for a machine."""
        zone = self.places[new.zone]
        incarnation = int(new.labels[names.INCARNATION_LABEL])
        if new.spot:
            taken, ready, death = self.ledger.ask(zone, self.time)
        else:
            # On demand is always to be had, and stays.
            taken, ready, death = True, self.time + self.ledger.market.latency.create, self.ledger.market.end
        self.machines.append(
            LightNode(new.name, new.zone, incarnation, self.time, taken, ready, death, new.labels, new.spot)
        )
        return Operation(f"create {new.name}", Kind.NODE, Verb.CREATE, new.name, new.zone, incarnation)

    def delete(self, name: str, zone: str) -> Operation | None:
        """Begin to delete a machine."""
        found = next((m for m in self.machines if m.name == name), None)
        if found is None:
            return None
        if found.deleted is None:
            found.deleted = self.time
        return Operation(f"delete {name}", Kind.NODE, Verb.DELETE, name, zone, found.incarnation)

    def poll(self, operation: Operation) -> OperationResult:
        """Look at a creation or a deletion."""
        machine = next((m for m in self.machines if m.name == operation.name), None)
        if machine is None:
            return OperationResult(operation, done=True)
        if operation.verb is Verb.DELETE:
            return OperationResult(operation, done=self._gone(machine))
        if machine.deleted is not None or self.time < machine.ready:
            return OperationResult(operation, done=machine.deleted is not None)
        if machine.taken:
            return OperationResult(operation, done=True)
        return OperationResult(operation, True, Retry.CAPACITY, "TPU-429", "no capacity")

    def _gone(self, machine: LightNode) -> bool:
        """Return whether a machine is in no list any more: refused, or its deletion has ended."""
        if machine.deleted is not None:
            return self.time >= self._gone_at(machine)
        return not machine.taken and self.time >= machine.ready

    # The bucket.

    def read(self, name: str, limit: int | None = None) -> StoredObject | None:
        """Read who has won a race, or the object that workers ring with: at a notice, and at rest after it."""
        if name in self.claims:
            return StoredObject(name, 0, 1, self.now(), self.claims[name])
        if not self.ledger.noticed or not name.startswith(object_names.WAKE):
            return None
        machine = next((m for m in self.machines if name == f"{object_names.WAKE}{m.incarnation}"), None)
        rings = 0 if machine is None else self._rings(machine)
        return StoredObject(name, 0, rings, self.now()) if rings else None

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """Write who has won a race. No machine does, since the controller is there before one has booted."""
        self.claims[name] = data
        return 1

    def _rings(self, machine: LightNode) -> int:
        """Return how often a machine has rung: 1 after its notice, 2 when its job is at rest."""
        latency = self.ledger.market.latency
        notice = machine.death - latency.notice
        if not machine.spot or not self.ledger.noticed or not machine.ready <= notice <= self.time:
            return 0
        return 2 if self.time >= notice + latency.save + SAVED else 1

    # What one look shows.

    def world(self, record: Record) -> World:
        """Return everything that a look at the cloud and the bucket would show."""
        self._book()
        polled = tuple(self.poll(o) for o in record.operations)
        mine = [m for m in self.machines if not self._gone(m)]
        nodes = tuple(self._node(m) for m in mine)
        asked = {o.name for o in record.operations}
        self.machines = [m for m in self.machines if m in mine or m.name in asked]
        heartbeats = tuple(
            self._heartbeat(m) for m in mine if self._talks(m) and m.incarnation == record.node.incarnation
        )
        region = names.region_of(self.spec.tpu.zones[0])
        return World(
            bucket=Present(Bucket("replay", region)),
            vm=Absent(),
            nodes=Present(nodes),
            heartbeats=Present(heartbeats),
            operations=polled,
            observed_at=self.now(),
            prices=self._prices_now(),
            claim=race_claim.read_claim(
                cast("Any", self),
                race_claim.round_to_read(record, Present(nodes)),
                record,
                Present(nodes),
            ),
        )

    def _prices_now(self) -> Prices:
        """Return what the record says that a machine costs now."""
        trace = self.ledger.market.trace
        tick = min(int(self.time / trace.tick), int(trace.price.shape[1]) - 1)
        if tick != self._prices[0]:
            column = trace.price[:, tick].tolist()
            known = {
                (self.spec.tpu.type, zone): Price(trace.on_demand, column[index])
                for zone, index in self.places.items()
            }
            self._prices = tick, Prices(known)
        return self._prices[1]

    def _talks(self, machine: LightNode) -> bool:
        return machine.taken and not machine.booked and machine.ready <= self.time < machine.death

    def _node(self, machine: LightNode) -> Node:
        state = NodeState.CREATING
        if machine.deleted is not None:
            state = NodeState.DELETING
        elif machine.taken and self.time >= machine.ready:
            state = NodeState.READY if self.time < machine.death else NodeState.PREEMPTED
        return Node(
            name=machine.name,
            zone=machine.zone,
            state=state,
            incarnation=machine.incarnation,
            workers=(Worker(0, "10.0.0.2"),) if state is NodeState.READY else (),
            labels=machine.labels,
            spot=machine.spot,
            created_at=EPOCH + machine.asked,
        )

    def _heartbeat(self, machine: LightNode) -> Heartbeat:
        rings = self._rings(machine)
        phase = (Phase.RUN, Phase.STOPPING, Phase.STOPPED)[rings]
        heartbeat = Heartbeat(
            machine.incarnation,
            0,
            phase,
            self.now(),
            bundle="code",
            notice=rings > 0,
            preempted=rings > 0,
        )
        first = self._first_step(machine)
        if first > self.time:
            return replace(heartbeat, phase=Phase.RESTORE) if not rings else heartbeat
        if not self.work:
            return heartbeat
        at_rest = machine.death - self.ledger.market.latency.notice if rings else self.time
        return replace(heartbeat, **self._progress(first, at_rest, saved=rings == 2))

    def _first_step(self, machine: LightNode) -> float:
        return machine.ready + self.ledger.market.latency.push + self.ledger.market.latency.restore

    def _progress(self, first: float, until: float, *, saved: bool) -> dict[str, Any]:
        """Return what a report says of a job that has stepped from *first* to *until*, beside its phase."""
        before, since = self.ledger.market.latency.worked(first, until)
        over = self.done + before + since >= self.work
        self.finished = self.finished or over
        committed = before + since if saved else before
        return {
            **({"phase": Phase.DONE} if over else {}),
            "step": int(self.done + before + since),
            "committed_step": int(self.work if over else self.done + committed),
            "committed_at": EPOCH + first + committed,
            "resumed_from": int(self.done),
            "began_step": int(self.done),
            "progress_at": self.now(),
            "rate": 1.0,
            "timings": {"first_step": EPOCH + first},
        }

    def _book(self) -> None:
        """Enter machines that have ended in the ledger."""
        for machine in self.machines:
            ended = machine.death <= self.time or machine.deleted is not None
            if machine.taken and ended and not machine.booked:
                machine.booked = True
                self._enter(machine)

    def _lost(self, machine: LightNode) -> bool:
        """Return whether a machine was in a race that another one has won, or nobody."""
        number = names.round_of(machine.labels)
        won = self.claims.get(f"{object_names.CLAIM}{number}", b"{}")
        return number > 0 and json.loads(won).get("incarnation") != machine.incarnation

    def _enter(self, machine: LightNode) -> None:
        stop = machine.death if machine.deleted is None else min(machine.death, machine.deleted)
        if stop <= machine.ready:
            return
        zone = self.places[machine.zone]
        if self._lost(machine):
            self.ledger.spare(zone, machine.ready, stop, spot=machine.spot)
        else:
            self.done += self.ledger.lifetime(
                zone, machine.ready, machine.death, stop=stop, spot=machine.spot
            )

    def close(self) -> None:
        """Enter what still runs at the end of the market."""
        for machine in self.machines:
            if machine.taken and not machine.booked:
                self._enter(machine)


def zone_name(zone: str) -> str:
    """Return the zone as Google would write it: us-east-1a as us-east1-a."""
    head, _, tail = zone.rpartition("-")
    return f"{head}{tail[:-1]}-{tail[-1]}" if tail[:1].isdigit() else zone
