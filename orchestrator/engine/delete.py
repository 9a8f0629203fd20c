"""Delete everything that carries the deployment's label, and prove it by listing."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from orchestrator.clock import wait_until
from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain import names
from orchestrator.domain.all_zones import AllZones, ObservedAllZones, outside
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.observation import (
    Absent,
    Node,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Unknown,
    Vm,
    VmState,
)
from orchestrator.domain.plan import MAKING, Change, Kind, Verb
from orchestrator.domain.ports import Nodes, Vms
from orchestrator.domain.record import (
    CONFIRMED_AFTER,
    TERMINAL,
    Candidate,
    NodeRecord,
    Record,
    setting_aside,
)
from orchestrator.domain.spec import Spec
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.leftover import Leftover
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error, observe, poll, zones_to_observe
from orchestrator.errors import (
    UNFORESEEN,
    AuthError,
    LeaseHeldError,
    TpuctlError,
    TransientError,
)
from orchestrator.planning.deployment_outcome import last_observed
from orchestrator.planning.deployment_state import was_started
from orchestrator.planning.fleet.deployments import fleet_of
from orchestrator.planning.tpu.node_decision import DELETE_AGAIN, DELETE_SETTLES
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT

M = TypeVar("M", Node, Vm)

RECORD_TIMEOUT = 60.0
"""Seconds to retry the write of the closed record."""
TIMEOUT = 600.0
"""Seconds until `down` stops waiting and prints what is left."""


def closing(record: Record) -> Record:
    """Return the record of a deployment that is being deleted, so that no loop recreates anything."""
    job, last = record.job, record.job.bundle or record.job.before_down
    return replace(record, job=replace(job, bundle="", uploaded="", settings_due=False, before_down=last))


def closed(record: Record, now: float) -> Record:
    """Return the record of a deployment whose machines are deleted; the next `up` starts a new time to live."""
    spans = tuple(replace(s, until=s.until or now) for s in record.spans)
    disks = tuple(replace(s, until=s.until or now) for s in record.disks)
    record = closing(record)
    return replace(
        record,
        node=replace(setting_aside(record), zone="", requested_at=0.0),
        race=replace(record.race, round=0, claimed=False, candidates=()),
        vm=replace(record.vm, accepted=False),
        operations=(),
        refusals=(),
        first_seen={},
        job=replace(record.job, pushed=""),
        spans=spans,
        disks=disks,
        started_at=0.0,
    )


def _known_machines(spec: Spec, record: Record) -> set[str]:
    """Return the names of what exists by the record: a first list without it may be older than the machine."""
    requested: tuple[NodeRecord | Candidate, ...] = (record.node, *record.race.candidates)
    accepted = {names.node_name(spec, one.incarnation) for one in requested if one.accepted}
    accepted |= {names.vm_name(spec)} if record.vm.accepted and spec.vm != "none" else set()
    # A VM that is stopped has its disk.
    spans = (*record.spans, *record.disks)
    billed = {span.name for span in spans if span.until is None}
    return billed | (accepted - {span.name for span in spans})


def _unanswered_until(record: Record) -> float:
    """Return when a creation whose answer was lost can no longer take effect, in seconds since the epoch; or 0."""
    unsure = [candidate.requested_at for candidate in record.race.candidates if not candidate.accepted]
    if not record.node.accepted and not record.refusals and record.node.requested_at > 0:
        unsure.append(record.node.requested_at)
    return max(unsure) + CONFIRMED_AFTER if unsure else 0.0


class Deletion:
    """
    Find and delete the machines of one deployment by their label, whatever the record says.

    *under_lease* stops the deletion when another tpuctl takes the lease; `down --take-over` continues without
    it. With *spares_adopted* an adopted machine is deleted only if its name is in *approved*, and is returned
    as a leftover otherwise: a killed command may have set its labels late. Names in *given_back* are ignored.
    *report* is called with what is waited for.
    """

    def __init__(self, deployment: Deployment, *, under_lease: bool = True) -> None:
        spec, record = deployment.spec, deployment.records.current
        self.deployment = deployment
        self.spares_adopted = False
        self.approved: frozenset[str] = frozenset()
        self.given_back: frozenset[str] = frozenset()
        self.report: Callable[[str], None] = lambda _: None
        self._under_lease = under_lease
        self._spec = spec
        self._cloud = deployment.cloud
        self._records = deployment.records
        self._lease = deployment.lease
        self._journal = deployment.journal
        self._clock = deployment.clock
        self._sink = deployment.sink
        # A node of a fleet never has a VM of its own, and a fleet has many nodes.
        self._of_fleet = spec.vm == "none" and bool(fleet_of(spec))
        # A lost record says nothing about the queue, so the queue is listed then too.
        queued = record.node.queued or record.node.incarnation == 0
        self._nodes = nodes_of(
            deployment.cloud, spec, replace(record, node=replace(record.node, queued=queued))
        )
        vm_zones = () if spec.vm == "none" else (names.vm_zone(spec),)
        self._zones = tuple(dict.fromkeys((*zones_to_observe(spec, record), *vm_zones)))
        # What may be there although a list does not show it, and the time when all of it has shown itself.
        self._known = _known_machines(spec, record)
        self._coming = [o for o in record.operations if o.verb in MAKING]
        self._settled = _unanswered_until(record)
        # What the lists and our own calls have shown since.
        self._asked: dict[str, float] = {}
        self._deletions: dict[str, Operation] = {}
        self._gone: set[str] = set()
        self._missing: dict[str, float] = {}
        self._recorded = False

    def begin(self) -> None:
        """
        Record that the deployment is being deleted, so that no other command recreates anything.

        If the bucket refuses the write, the deletion continues; `close` records the end of it.
        """
        self._record_last_observation()
        try:
            self._records.update(closing)
        except TpuctlError as error:
            self._raise_if_lease_lost(error)
            self._sink(Event(self._clock.now(), EventKind.FAILURE, f"the record: {error.message}"))

    def _record_last_observation(self) -> None:
        """
        Add what machines and their reports show to the record, with the next write.

        No watcher may have run: afterwards nothing tells of the last checkpoint, of a preemption or of a job's end.
        """
        # A fleet's watch observes its nodes.
        if self._recorded or self._of_fleet or not was_started(self._records.current):
            return
        # The folder may be another deployment's: its machines and reports say nothing of this one.
        if self._records.damaged or self._records.doubt:
            return
        self._recorded = True
        # Nothing that is observed, and no failure to observe, may prevent the deletion.
        with suppress(TpuctlError, *UNFORESEEN):
            before = self._records.current
            world = observe(
                self._cloud, self._spec, before, self.deployment.blueprint.bucket, self._clock.now()
            )
            after, lost = last_observed(self._spec, before, world)
            self._records.update_later(lambda _: after)
            if lost is not None:
                self._sink(lost)

    def _raise_if_lease_lost(self, error: TpuctlError) -> None:
        """Raise *error* if another tpuctl has taken the lease, unless the user chose to continue without it."""
        if self._under_lease and isinstance(error, LeaseHeldError):
            raise error

    def close(self) -> Leftover | None:
        """Record that all machines are deleted; return the record as a leftover if that fails."""
        now, message = self._clock.now(), ""

        def recorded() -> bool:
            nonlocal message
            try:
                self._records.update(lambda record: closed(record, now))
            except TpuctlError as error:
                self._raise_if_lease_lost(error)
                message = error.message
                return False
            return True

        done = wait_until(recorded, self._clock, RECORD_TIMEOUT, 1.0)
        return None if done else Leftover("record", RECORD, "", f"it could not be closed: {message}")

    def find(self) -> tuple[Leftover, ...]:
        """List everything with our label in every zone ever used; a list that failed is an entry of its own."""
        return tuple(leftover for leftover, _ in self._listed())

    def _listed(self) -> list[tuple[Leftover, Node | Vm | None]]:
        label, value = names.DEPLOYMENT_LABEL, self._spec.name
        nodes = self._nodes.labelled(label, value, self._zones)
        vms = Absent() if self._of_fleet else self._cloud.vms.labelled(label, value, self._zones)
        found: list[tuple[Leftover, Node | Vm | None]] = []
        for kind, observed in ((Kind.NODE.word, nodes), (Kind.VM.word, vms)):
            if isinstance(observed, Unknown):
                where = ", ".join(self._zones)
                found.append((Leftover(kind, "?", where, f"not known: {observed.message}"), None))
            elif isinstance(observed, Present):
                # A list may still show the old labels of a machine that was given back.
                mine = [one for one in observed.value if one.name not in self.given_back]
                found += [(Leftover(kind, one.name, one.zone, one.state.name), one) for one in mine]
        return found

    def adopted(self) -> tuple[Node | Vm, ...]:
        """Return the machines with our label that were adopted, not created by tpuctl."""
        machines = (machine for _, machine in self._listed() if machine is not None)
        return tuple(one for one in machines if one.labels.get(names.ADOPTED_LABEL))

    def ended(self) -> frozenset[str]:
        """Return the names of TPUs that were preempted or terminated, and of stopped VMs: they no longer run."""
        machines = [machine for _, machine in self._listed() if machine is not None]
        return frozenset(
            machine.name
            for machine in machines
            if machine.state in TERMINAL or machine.state is VmState.TERMINATED
        )

    def outside_zones(self) -> tuple[ObservedAllZones[Node], ObservedAllZones[Vm]]:
        """
        List TPUs and VMs with our label in zones that neither the file nor the record names.

        They are reported and never deleted: no record says that this deployment created them.
        """

        def others(listed: ObservedAllZones[M]) -> ObservedAllZones[M]:
            if isinstance(listed, Unknown):
                return listed
            return Present(replace(listed.value, found=outside(listed.value, self._zones)))

        label, value = names.DEPLOYMENT_LABEL, self._spec.name
        nodes = others(self._nodes.list_all_zones(label, value))
        if self._of_fleet:
            return nodes, Present(AllZones(()))
        return nodes, others(self._cloud.vms.list_all_zones(label, value))

    def machines(self) -> tuple[Leftover, ...]:
        """Delete all machines and return what is left after TIMEOUT seconds."""
        leftovers: tuple[Leftover, ...] = ()
        machines: list[Node | Vm] = []

        def all_gone() -> bool:
            nonlocal leftovers, machines
            self._still_ours()
            listed = self._listed()
            machines = [machine for _, machine in listed if machine is not None]
            for machine in machines:
                if not self._spared(machine):
                    self._delete(machine)
            # Count what may still appear: one empty list does not end the deletion.
            doubts = self._not_certain({m.name for m in machines}, complete=len(machines) == len(listed))
            leftovers = (*(leftover for leftover, _ in listed), *self._on_their_way(), *doubts)
            if leftovers:
                self.report(", ".join(one.text for one in leftovers))
            # Spared machines stay until the user approves their deletion, so waiting for them is pointless.
            return not leftovers or (all(map(self._spared, machines)) and len(machines) == len(leftovers))

        done = wait_until(all_gone, self._clock, TIMEOUT, 1.0)
        # Google drops the deletion of a TPU that is still being created, so wait for the creation to end.
        if not done and any(machine.state is NodeState.CREATING for machine in machines):
            wait_until(all_gone, self._clock, CREATE_TIMEOUT - TIMEOUT, 1.0)
        return leftovers

    def _spared(self, machine: Node | Vm) -> bool:
        adopted = names.ADOPTED_LABEL in machine.labels
        return adopted and self.spares_adopted and machine.name not in self.approved

    def _still_ours(self) -> None:
        """Raise LeaseHeldError if another tpuctl has the lease; a bucket that does not answer stops no deletion."""
        try:
            self._lease.keep()
        # Any other error ends the deletion: the lease belongs to another process now.
        except (TransientError, AuthError):
            return

    def _not_certain(self, here: set[str], *, complete: bool) -> list[Leftover]:
        """
        Return the machines that were not observed and are not proven deleted: a list may be older than a machine.

        A machine counts as deleted when its delete operation has succeeded and it is not found by name, or
        when two complete lists, CONFIRMED_AFTER seconds apart, lack it. *complete* says that no list of this
        round failed.
        """
        now = self._clock.now()
        self._known = (self._known | here) - self.given_back
        running = {n: o for n, o in self._deletions.items() if now - o.started_at < DELETE_AGAIN}
        # Keep an operation that has ended until a list lacks its machine.
        self._deletions = {n: o for n, o in running.items() if n in here or not self._done(o)}
        ended = {n: o for n, o in running.items() if n not in self._deletions}
        self._gone |= {n for n, o in ended.items() if self._succeeded(o) and self._absent(o)}
        under_way = [o for n, o in self._deletions.items() if n not in here]
        doubtful = sorted(self._known - here - self._gone - set(self._deletions))
        # A failed list proves nothing, neither presence nor absence.
        missed = [name for name in doubtful if complete or name in self._missing]
        self._missing = {name: self._missing.get(name, now) for name in missed}
        unsure = [name for name, since in self._missing.items() if now - since < CONFIRMED_AFTER]
        return [
            *(Leftover(o.kind.word, o.name, o.zone, "its deletion is running") for o in under_way),
            *(Leftover("?", name, "", "not listed; checking once more") for name in unsure),
        ]

    def _on_their_way(self) -> tuple[Leftover, ...]:
        """Return the creates that still run: their machines would appear after `down` has reported success."""
        # Not beyond CREATE_TIMEOUT: an operation can stay open for ever, and the list shows what it made.
        recent = [o for o in self._coming if self._clock.now() - o.started_at < CREATE_TIMEOUT]
        self._coming = [o for o in recent if not self._done(o)]
        coming = [
            Leftover(o.kind.word, o.name, o.zone, f"its {o.verb.word} is still running") for o in self._coming
        ]
        if self._clock.now() < self._settled:
            coming.append(
                Leftover(
                    Kind.NODE.word, "?", ", ".join(self._zones), "a create whose answer was lost may follow"
                )
            )
        return tuple(coming)

    def _done(self, operation: Operation) -> bool:
        return self._polled(operation).done

    def _succeeded(self, operation: Operation) -> bool:
        result = self._polled(operation)
        return result.done and result.retry is None and not result.forgotten

    def _absent(self, operation: Operation) -> bool:
        """Return whether the machine is not found by name: Google may report success without effect."""
        return isinstance(self._adapter(operation.kind).observe(operation.name, operation.zone), Absent)

    def _polled(self, operation: Operation) -> OperationResult:
        return poll(self._adapter(operation.kind), operation)

    def _adapter(self, kind: Kind) -> Nodes | Vms:
        return self._nodes if kind is Kind.NODE else self._cloud.vms

    def _delete(self, machine: Node | Vm) -> None:
        """Request one deletion; repeat the request a minute later at the earliest."""
        name, zone, now = machine.name, machine.zone, self._clock.now()
        if machine.state in {NodeState.DELETING, VmState.DEPROVISIONING} and name not in self._asked:
            self._asked[name] = now
            return
        pause = DELETE_SETTLES if machine.state is NodeState.CREATING else 60
        if now - self._asked.get(name, float("-inf")) < pause:
            return
        self._asked[name] = now
        kind, what = (Kind.NODE, "TPU") if isinstance(machine, Node) else (Kind.VM, "VM")
        # The intent is local only: an unreachable bucket must not stop a deletion.
        entry = self._journal.intend(Change(kind, Verb.DELETE, name, "down", zone), in_bucket=False)
        try:
            operation = self._adapter(kind).delete(name, zone)
            if operation is None:
                self._gone.add(name)  # The API answered 404: it does not exist.
            else:
                self._deletions[name] = replace(operation, started_at=self._clock.now())
        except PASS_ERRORS as caught:
            # One failed deletion must not stop the others; the next round repeats it.
            error = as_error(caught)
            self._journal.result(entry, f"{error.code} {error.message}", in_bucket=False)
            self._sink(Event(self._clock.now(), EventKind.DELETE_FAILED, f"{what} {name}: {error.message}"))
            return
        self._journal.result(entry, "ok", in_bucket=False)
        self._sink(Event(self._clock.now(), EventKind.DELETE, f"Deleting {what} {name}"))
