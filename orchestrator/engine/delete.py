"""Delete everything that carries our label, and prove it by listing."""

from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.contract.object_names import RECORD
from orchestrator.domain import names
from orchestrator.domain.all_zones import Survey, outside
from orchestrator.domain.events import Event
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
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record, newest_incarnation
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.loop import wait_until
from orchestrator.engine.observe import FAULTS, as_error, zones_to_look_at
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.errors import (
    AuthError,
    LeaseHeldError,
    NotFoundError,
    TpuctlError,
    TransientError,
)
from orchestrator.planning.next_zone import SECOND_WITNESS
from orchestrator.planning.tpu import CREATE_DEADLINE, DELETE_AGAIN, DELETE_SETTLES

M = TypeVar("M", Node, Vm)

RECORD_SECONDS = 60.0
"""Seconds for which a bucket that does not take the closed record is asked again."""
BUCKET_SECONDS = 20.0
"""Seconds for which a bucket whose objects are not to be deleted yet is asked again."""
DEADLINE = 600.0
"""Seconds after which `down` stops waiting and prints what is left."""


def closing(record: Record) -> Record:
    """Return the record of a deployment that is going: nothing is to watch, so nothing is brought back."""
    return replace(record, job=replace(record.job, bundle="", uploaded="", settings_due=False))


def closed(record: Record, now: float) -> Record:
    """Return the record of a deployment whose machines are gone; the next `up` begins a new time to live."""
    spans = tuple(replace(s, until=s.until or now) for s in record.spans)
    record = closing(record)
    return replace(
        record,
        node=replace(
            record.node, incarnation=newest_incarnation(record) + 1, zone="", accepted=False, requested_at=0.0
        ),
        race=replace(record.race, round=0, claimed=False, rivals=()),
        vm=replace(record.vm, accepted=False),
        operations=(),
        refusals=(),
        first_seen={},
        job=replace(record.job, pushed=""),
        spans=spans,
        started_at=0.0,
    )


@dataclass(frozen=True)
class Left:
    """Name one resource that is still there, or that nobody could look for."""

    kind: str
    name: str
    zone: str
    state: str


class Sweep:
    """
    Find and delete the machines of one deployment, whatever the record says.

    It stops when another tpuctl takes the lease, unless it is not *alone* by the user's own decision.
    """

    def __init__(self, deployment: Deployment, *, alone: bool = True) -> None:
        spec = deployment.spec
        self._alone = alone
        self._cloud = deployment.cloud
        known = deployment.records.current
        # Without a record nobody knows whether there was ever something in the queue.
        known = replace(
            known, node=replace(known.node, queued=known.node.queued or known.node.incarnation == 0)
        )
        self._nodes = nodes_of(deployment.cloud, spec, known)
        self._spec = spec
        self._records = deployment.records
        self._lease = deployment.lease
        self._journal = deployment.journal
        self._clock = deployment.clock
        self._sink = deployment.sink
        vm_zones = () if spec.vm == "none" else (names.vm_zone(spec),)
        self._zones = tuple(dict.fromkeys((*zones_to_look_at(spec, deployment.records.current), *vm_zones)))
        self._asked: dict[str, float] = {}
        record = deployment.records.current
        self._coming = [o for o in record.operations if o.verb in {"create", "start"}]
        # An order whose answer was lost may still take effect; it is waited for, not forgotten.
        self._deletions: dict[str, Operation] = {}
        self._gone: set[str] = set()
        # What the record says exists; a first list that does not show it may be an old one.
        self._known = {s.name for s in record.spans if s.until is None}
        asked = {
            record.node.incarnation: record.node.accepted,
            **{r.incarnation: r.accepted for r in record.race.rivals},
        }
        accepted = {names.node_name(spec, number) for number, taken in asked.items() if taken}
        self._known |= accepted - {s.name for s in record.spans}  # Asked for, and never seen.
        self._missing: dict[str, float] = {}
        unconfirmed = not record.node.accepted and not record.refusals and record.node.requested_at > 0
        unsure = [r.requested_at for r in record.race.rivals if not r.accepted]
        unsure += [record.node.requested_at] if unconfirmed else []
        self._settled = max(unsure) + SECOND_WITNESS if unsure else 0.0

    def begin(self) -> None:
        """
        Record that the deployment goes, so that nothing that comes between brings it back.

        A bucket out of reach stops no deletion; the end is recorded when all is gone.
        """
        try:
            self._records.update(closing)
        except TpuctlError as error:
            self._unless_alone(error)
            self._sink(Event(self._clock.now(), "failure", f"the record: {error.message}"))

    def _unless_alone(self, error: TpuctlError) -> None:
        """Raise when another tpuctl is at work, unless the user has decided to go on all the same."""
        if self._alone and isinstance(error, LeaseHeldError):
            raise error

    def close(self) -> Left | None:
        """Record that the machines are gone; return the record when its bucket does not take that for a minute."""
        now, why = self._clock.now(), ""

        def recorded() -> bool:
            nonlocal why
            try:
                self._records.update(lambda record: closed(record, now))
            except TpuctlError as error:
                self._unless_alone(error)
                why = error.message
                return False
            return True

        done = wait_until(recorded, self._clock, RECORD_SECONDS, 1.0)
        return None if done else Left("record", RECORD, "", f"it could not be closed: {why}")

    def find(self) -> tuple[Left, ...]:
        """List what carries our label in every zone ever used; a list that failed is an entry of its own."""
        label, value = names.DEPLOYMENT_LABEL, self._spec.name
        left = []
        nodes = self._nodes.labelled(label, value, self._zones)
        vms = self._cloud.vms.labelled(label, value, self._zones)
        for kind, sight in (("TPU", nodes), ("VM", vms)):
            if isinstance(sight, Unknown):
                left.append(Left(kind, "?", ", ".join(self._zones), f"not known: {sight.why}"))
            elif isinstance(sight, Present):
                left += [Left(kind, found.name, found.zone, found.state.name) for found in sight.value]
        return tuple(left)

    def elsewhere(self) -> tuple[Survey[Node], Survey[Vm]]:
        """
        List the TPUs and VMs that carry our label in zones that neither the file nor the record names.

        They are told and not deleted: nobody has written down that they are this deployment's.
        """
        label, value = names.DEPLOYMENT_LABEL, self._spec.name
        tpus, vms = self._nodes.everywhere(label, value), self._cloud.vms.everywhere(label, value)
        return self._strange(tpus), self._strange(vms)

    def _strange(self, seen: Survey[M]) -> Survey[M]:
        if isinstance(seen, Unknown):
            return seen
        return Present(replace(seen.value, found=outside(seen.value, self._zones)))

    def machines(self) -> tuple[Left, ...]:
        """Delete all machines and return what is left after at most the deadline."""
        left: tuple[Left, ...] = ()

        def gone() -> bool:
            nonlocal left
            self._still_ours()
            left = self.find()
            for item in left:
                self._delete(item)
            left = (*left, *self._on_their_way(), *self._not_certain(left))
            return not left

        if not wait_until(gone, self._clock, DEADLINE, 1.0) and self._being_created(left):
            wait_until(gone, self._clock, CREATE_DEADLINE - DEADLINE, 1.0)
        return left

    def _being_created(self, left: tuple[Left, ...]) -> bool:
        """Say whether a TPU is left whose creation may still drop its deletion."""
        return any(item.state == NodeState.CREATING.name for item in left)

    def _still_ours(self) -> None:
        """Stop when somebody took the lease over; a bucket that does not answer, or not us, stops no deletion."""
        try:
            self._lease.keep()
        except (TransientError, AuthError):
            return

    def _not_certain(self, listed: tuple[Left, ...]) -> tuple[Left, ...]:
        """
        Return what an empty list does not prove to be gone: one list may be older than what it lists.

        What the record knows or a list has shown is gone when the operation of its deletion has succeeded, or
        when it is missing twice, half a minute apart.
        """
        now, here = self._clock.now(), {item.name for item in listed}
        self._known |= here - {"?"}
        running = {n: o for n, o in self._deletions.items() if now - o.started_at < DELETE_AGAIN}
        # One that is done at once is kept for the next list, which may be the first to be without it.
        self._deletions = {n: o for n, o in running.items() if n in here or not self._done(o)}
        ended = {n: o for n, o in running.items() if n not in self._deletions}
        self._gone |= {n for n, o in ended.items() if self._succeeded(o) and self._absent(o)}
        left = [
            Left(o.kind, n, o.zone, "its deletion is running")
            for n, o in self._deletions.items()
            if n not in here
        ]
        doubtful = sorted(self._known - here - self._gone - set(self._deletions))
        # A list that failed is no witness: it neither shows nor misses anything.
        missed = [name for name in doubtful if "?" not in here or name in self._missing]
        self._missing = {name: self._missing.get(name, now) for name in missed}
        unsure = [name for name, since in self._missing.items() if now - since < SECOND_WITNESS]
        return (*left, *(Left("?", name, "", "not in sight; looking once more") for name in unsure))

    def _on_their_way(self) -> tuple[Left, ...]:
        """Return what was ordered and has not shown yet: it will, after this command has said that all is gone."""
        # An operation that the API calls running for ever is not waited for: the list shows what it made.
        recent = [o for o in self._coming if self._clock.now() - o.started_at < CREATE_DEADLINE]
        self._coming = [o for o in recent if not self._done(o)]
        coming = [Left(o.kind, o.name, o.zone, f"its {o.verb} is still running") for o in self._coming]
        if self._clock.now() < self._settled:
            coming.append(
                Left("TPU", "?", ", ".join(self._zones), "a create whose answer was lost may follow")
            )
        return tuple(coming)

    def _done(self, operation: Operation) -> bool:
        result = self._polled(operation)
        return result is not None and result.done

    def _succeeded(self, operation: Operation) -> bool:
        result = self._polled(operation)
        return result is not None and result.done and result.retry is None

    def _absent(self, operation: Operation) -> bool:
        """Say whether the API knows no such machine: a deletion that succeeded may have had no effect."""
        adapter = self._nodes if operation.kind == Kind.NODE.value else self._cloud.vms
        return isinstance(adapter.observe(operation.name, operation.zone), Absent)

    def _polled(self, operation: Operation) -> OperationResult | None:
        """Look at an operation; one that the cloud has forgotten is done, and None means that nobody knows."""
        adapter = self._nodes if operation.kind == Kind.NODE.value else self._cloud.vms
        try:
            return adapter.poll(operation)
        except NotFoundError:
            return OperationResult(operation, done=True)
        except TpuctlError:
            return None

    def _delete(self, item: Left) -> None:
        """Ask for one deletion; again only after a minute, since a deletion takes its time."""
        going = item.state in {NodeState.DELETING.name, VmState.DEPROVISIONING.name}
        if item.name == "?" or (going and item.name not in self._asked):
            self._asked.setdefault(item.name, self._clock.now())
            return
        pause = DELETE_SETTLES if item.state == NodeState.CREATING.name else 60
        if self._clock.now() - self._asked.get(item.name, float("-inf")) < pause:
            return
        self._asked[item.name] = self._clock.now()
        kind = Kind.NODE if item.kind == "TPU" else Kind.VM
        change = Change(kind, Verb.DELETE, item.name, "down", item.zone)
        try:
            entry = self._journal.intend(change, in_bucket=False)
            adapter = self._nodes if kind is Kind.NODE else self._cloud.vms
            operation = adapter.delete(item.name, item.zone)
            if operation is None:
                self._gone.add(item.name)  # The API says without doubt that it is not there.
            else:
                self._deletions[item.name] = replace(operation, started_at=self._clock.now())
            self._journal.result(entry, "ok", in_bucket=False)
        except NotFoundError:
            return
        except FAULTS as fault:
            why = as_error(fault).message
            self._sink(Event(self._clock.now(), "delete-failed", f"{item.kind} {item.name}: {why}"))
            return
        self._sink(Event(self._clock.now(), "delete", f"{item.kind} {item.name}: deletion asked for"))

    def bucket(self, name: str) -> Left | None:
        """Delete our bucket with its data; return it when it is still there or is not ours."""
        seen = self._cloud.buckets.observe(name)
        if isinstance(seen, Unknown):
            return Left("bucket", name, "", f"not known: {seen.why}")
        if not isinstance(seen, Present):
            return None
        if self._spec.bucket.adopt or seen.value.labels.get(names.DEPLOYMENT_LABEL) != self._spec.name:
            return Left("bucket", name, seen.value.location, "not made by this deployment, kept")
        change = Change(Kind.BUCKET, Verb.DELETE, name, "down --delete-data", seen.value.location)
        entry = self._journal.intend(change, in_bucket=False)
        trouble: TpuctlError | None = None

        def deleted() -> bool:
            nonlocal trouble
            try:
                self._cloud.buckets.delete(name)
            except TransientError as error:
                # An object that was written a moment ago may not be deleted yet: one change a second.
                trouble = error
                return False
            return True

        try:
            gone = wait_until(deleted, self._clock, BUCKET_SECONDS, 1.0)
        except TpuctlError as error:
            gone, trouble = False, error
        if not gone and trouble is not None:
            self._journal.result(entry, f"{trouble.code} {trouble.message}", in_bucket=False)
            return Left("bucket", name, seen.value.location, trouble.message)
        self._journal.result(entry, "ok", in_bucket=False)
        return None
