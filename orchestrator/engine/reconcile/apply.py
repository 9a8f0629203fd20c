"""
Make the changes of a plan: intent, record, call, result.

Besides this module only `delete`, `delete_data` and `adopt` change resources.
"""

from collections.abc import Callable
from dataclasses import replace

from orchestrator import threads
from orchestrator.domain import names
from orchestrator.domain.bucket_grants import grants_mark
from orchestrator.domain.events import Event, EventKind, change_word
from orchestrator.domain.observation import Absent, Node, Operation, Present, Unknown, World
from orchestrator.domain.plan import MAKING, Change, FailedChange, Kind, Plan, Verb
from orchestrator.domain.ports import NewNode, Nodes, Vms
from orchestrator.domain.record import Record, Refusal, current_node, forgiven
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.engine.reconcile.artifacts import find_artifacts, upload
from orchestrator.engine.reconcile.deliver import deliver, deliver_sidecars, node_hosts
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error
from orchestrator.engine.routes import vm_host
from orchestrator.errors import (
    ConflictError,
    LeaseHeldError,
    NotFoundError,
    RemoteError,
    Retry,
    TpuctlError,
    TransientError,
    UsageError,
)
from orchestrator.planning.intended_record import intended
from orchestrator.planning.job import AFTER_PUSH, latest_try, push_mark
from orchestrator.planning.sidecars import with_settings
from orchestrator.planning.tpu.next_zone import quota_wait
from orchestrator.planning.tpu.on_demand import refusal_of
from orchestrator.planning.tpu.race import accepted, refused

REMOTE_PAUSE = 3.0
"""Seconds before unreachable machines are tried again."""
UNCHANGED = "no TPU was created"


class Actor:
    """Make the changes of a plan, each one written to the journal before its call."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._cloud = deployment.cloud
        self._blueprint = deployment.blueprint
        self._records = deployment.records
        self._journal = deployment.journal
        self._lease = deployment.lease
        self._clock = deployment.clock
        self._sink = deployment.sink

    def apply(self, plan: Plan, world: World) -> tuple[FailedChange, ...]:
        """
        Make all changes and return those that failed.

        Resources of different kinds are changed in parallel, those of one kind in order. The first VM is
        created before the first TPU: if the VM is refused for good, no TPU is billed beside it.
        """
        # The create budget is taken here and not when planning, because another deployment may have used it since.
        changes = [change for change in plan.changes if not self._held(change)]
        # From here on a kill at any line is safe: the record lists everything that may exist.
        self._intend(changes)
        first = self._first_vm(changes)
        failures = self._side_by_side(first, world)
        changes = [change for change in changes if change not in first]
        # The VM will never come, so a TPU would be billed for nothing.
        final = next((f for f in failures if f.error.retry in {Retry.PERMANENT, Retry.QUOTA}), None)
        if final is not None:
            tpus = [change for change in changes if change.requests_tpu]
            failures += tuple(self._not_requested(change, final) for change in tpus)
            changes = [change for change in changes if change not in tpus]
        later = self._side_by_side(changes, world)
        return failures + tuple(_as_wait(failure, world) for failure in later)

    def _first_vm(self, changes: list[Change]) -> list[Change]:
        """Return the create of the deployment's first VM if the same plan requests a TPU, else an empty list."""
        if self._records.current.vm.accepted or not any(change.requests_tpu for change in changes):
            return []
        return [change for change in changes if (change.kind, change.verb) == (Kind.VM, Verb.CREATE)]

    def _not_requested(self, change: Change, cause: FailedChange) -> FailedChange:
        """Record that a TPU was not requested because the VM was refused, as a refusal of the TPU's zone."""
        error = cause.error
        message = type(error)(
            f"TPU {change.name} was not requested: {error.message}",
            code=error.code, hint=error.hint, changed="no TPU was requested",
        )  # fmt: skip
        self._refused(change, message, None)
        return FailedChange(change, message)

    def _side_by_side(self, changes: list[Change], world: World) -> tuple[FailedChange, ...]:
        lanes = dict.fromkeys(change.lane for change in changes)
        with threads.pool(len(lanes)) as pool:
            groups = [[c for c in changes if c.lane == lane] for lane in lanes]
            done = list(pool.map(lambda group: [self._make(change, world) for change in group], groups))
        return tuple(failure for group in done for failure in group if failure is not None)

    def _intend(self, changes: list[Change]) -> None:
        """
        Save what was observed and all intents in one write, before any call that they cover.

        Raise LeaseHeldError, DiskError or the bucket's error; no call has been made then.
        """
        if not changes:
            return
        self._lease.keep()
        # One write for all intents: the object takes one write a second, and every call waits for its intent.
        queued, now = self._blueprint.spec.tpu.request != "node", self._clock.now()
        self._records.update(lambda record: intended(record, changes, queued=queued, now=now))

    def _make(self, change: Change, world: World) -> FailedChange | None:
        # Outside the try: a lost lease must end the pass, not be recorded as a refusal by the cloud.
        self._lease.keep()
        in_bucket = isinstance(world.bucket, Present)
        if in_bucket and self._lease.token is None:
            gone = "the bucket went away while this pass made its changes, and with it the lease"
            raise TransientError(gone, changed="nothing more was created or deleted")
        entry = ""
        try:
            # Durable before the call: with the record lost, a killed create is found again by the journal alone.
            entry = self._journal.intend(change, in_bucket=in_bucket)
            text = self._call(change, world)
        # Another tpuctl is at work: not even the result may be written.
        except LeaseHeldError:
            raise
        except PASS_ERRORS as caught:
            # A bug of ours fails this change only, because one of the others may be a deletion that stops a bill.
            error = as_error(caught)
            self._refused(change, error, world)
            if entry:
                self._journal_result(entry, f"{error.code} {error.message}", in_bucket=in_bucket)
            return FailedChange(change, error)
        self._journal_result(entry, "ok", in_bucket=in_bucket)
        if text:
            self._say(change, text)
        return None

    def _held(self, change: Change) -> bool:
        """Return whether the create budget is used up after all, by another deployment since the plan was made."""
        if not change.requests_tpu:
            return False
        return self._deployment.create_budget.take(change.zone, self._clock.now()) > 0

    def _journal_result(self, entry: str, outcome: str, *, in_bucket: bool) -> None:
        """Write the result. If that fails, the intent stays open, so the next process only polls it again."""
        try:
            self._journal.result(entry, outcome, in_bucket=in_bucket)
        except TpuctlError as error:
            self._sink(Event(self._clock.now(), EventKind.JOURNAL, f"journal: {error.message}"))

    def _say(self, change: Change, text: str) -> None:
        data = change.as_dict()
        self._sink(Event(self._clock.now(), change_word(change.kind, change.verb), text, data))

    def _call(self, change: Change, world: World) -> str:
        handlers: dict[tuple[Kind, Verb], Callable[[Change, World], str]] = {
            (Kind.BUCKET, Verb.CREATE): self._create_bucket,
            (Kind.BUNDLE, Verb.CREATE): self._upload,
            (Kind.VM, Verb.CREATE): self._create_vm,
            (Kind.VM, Verb.START): self._start_vm,
            (Kind.VM, Verb.STOP): self._stop_vm,
            (Kind.VM, Verb.DELETE): self._delete_vm,
            (Kind.NODE, Verb.CREATE): self._create_node,
            (Kind.NODE, Verb.DELETE): self._delete_node,
            (Kind.JOB, Verb.CREATE): self._push,
            (Kind.JOB, Verb.UPDATE): self._push,
            (Kind.SIDECARS, Verb.UPDATE): self._update_sidecars,
        }
        return handlers[change.kind, change.verb](change, world)

    def _create_bucket(self, change: Change, world: World) -> str:
        new = self._blueprint.new_bucket()
        if self._blueprint.spec.bucket.adopt:
            raise ConflictError(
                f"bucket.adopt is set, but the bucket {new.name} does not exist",
                hint="create it, or leave out bucket.adopt so that tpuctl creates it",
                changed="no bucket was created",
            )
        self._cloud.buckets.create(new)
        mark, now = grants_mark(self._blueprint.spec), self._clock.now()
        # This write is a compare-and-swap: of two first `up` commands, only one continues after it.
        self._records.update(
            lambda record: replace(
                forgiven(record, Kind.BUCKET),
                bucket=replace(record.bucket, observed=True, ready=True, grants=mark, granted_at=now),
            )
        )
        return f"bucket {new.name} is ready in {new.location}"

    def _upload(self, change: Change, world: World) -> str:
        record = self._records.current
        artifacts = find_artifacts(record, self._deployment.bundles, self._cloud.store)
        upload(artifacts, self._deployment.bundles, self._cloud.store)
        mark = f"{record.job.bundle}:{record.job.agent}"
        self._records.update_later(
            lambda record: replace(forgiven(record, Kind.BUNDLE), job=replace(record.job, uploaded=mark))
        )
        return f"code {record.job.bundle[:12]} is in the bucket"

    def _create_vm(self, change: Change, world: World) -> str:
        new = self._blueprint.new_vm(self._records.current)
        # Need not be durable: after a kill the VM is found by its label.
        self._remember(self._cloud.vms.create(new))
        self._records.update_later(
            lambda record: replace(
                record, vm=replace(record.vm, accepted=True), sidecars=self._with_settings(record, "vm")
            )
        )
        return f"Creating VM {new.name} ({new.machine_type}) in {new.zone}"

    def _start_vm(self, change: Change, world: World) -> str:
        self._remember(self._cloud.vms.start(change.name, change.zone))
        return f"Starting VM {change.name} ({change.message})"

    def _stop_vm(self, change: Change, world: World) -> str:
        # The loop may run on this VM and ends with it, so its last events are stored before the call.
        self._say(change, f"Stopping VM {change.name}, its disk stays ({change.message})")
        self._deployment.store_events()
        self._remember(self._cloud.vms.stop(change.name, change.zone))
        return ""

    def _delete_vm(self, change: Change, world: World) -> str:
        self._remember(self._cloud.vms.delete(change.name, change.zone))
        return f"Deleting VM {change.name} ({change.message})"

    def _create_node(self, change: Change, world: World) -> str:
        new = self._blueprint.new_node(self._records.current, change.zone, change.incarnation or 0)
        check_disks(self._cloud.vms, new)
        try:
            # Each incarnation has its own name, so repeating the call cannot create a second TPU.
            operation = self._nodes.create(new)
        except ConflictError as error:
            # The name is taken. If that node has our label, our own earlier call created it and its
            # answer was lost.
            if error.aborted or not self._has_our_label(change.name, change.zone):
                raise
            operation = None
        self._records.update_later(
            lambda record: replace(
                accepted(record, change.incarnation or 0), sidecars=self._with_settings(record, "tpu")
            )
        )
        self._remember(operation)
        return f"Creating TPU {new.name} ({new.type}) in {new.zone}: {change.message}"

    @property
    def _nodes(self) -> Nodes:
        return nodes_of(self._cloud, self._blueprint.spec, self._records.current)

    def _has_our_label(self, name: str, zone: str) -> bool:
        """
        Return whether the node of that name carries our label, so that a create whose answer was lost made it.

        Raise TransientError if the node cannot be read. It is read by name, because a list may be older than
        it.
        """
        observed = self._nodes.observe(name, zone)
        if isinstance(observed, Present):
            return observed.value.labels.get(names.DEPLOYMENT_LABEL) == self._blueprint.spec.name
        message = observed.message if isinstance(observed, Unknown) else "it is not found by its name"
        raise TransientError(
            f"the name {name} is taken; whose it is cannot be seen now: {message}",
            changed="this request made no TPU",
        )

    def _delete_node(self, change: Change, world: World) -> str:
        self._remember(self._nodes.delete(change.name, change.zone))
        return f"Deleting TPU {change.name} ({change.message})"

    def _push(self, change: Change, world: World) -> str:
        node = self._node(world)
        record = self._records.current
        artifacts = find_artifacts(record, self._deployment.bundles, self._cloud.store)
        text = deliver(self._cloud, self._blueprint, artifacts, record, node, world, change)
        mark = push_mark(record)
        pause = self._clock.now() + AFTER_PUSH
        self._records.update_later(
            lambda record: replace(
                record,
                job=replace(record.job, pushed=mark, settings_due=False),
                ssh=replace(record.ssh, failed_since=None, next_try_at=pause),
            )
        )
        return text

    def _update_sidecars(self, change: Change, world: World) -> str:
        """
        Update the settings of the sidecars on the VM, or on worker 0 of the TPU.

        A failure is reported and not retried by the loop: sidecars are not needed to run the job.
        """
        on_vm = change.name == names.vm_name(self._blueprint.spec)
        role = "vm" if on_vm else "tpu"
        try:
            host = (
                vm_host(self._cloud, world) if on_vm else node_hosts(self._cloud, self._node(world), world)[0]
            )
            deliver_sidecars(self._cloud, self._blueprint, host, role)
            text = "the new settings are there"
        except (RemoteError, NotFoundError) as error:
            text = f"they keep their settings ({error.message}); `tpuctl tunnel` tries again"
        self._records.update_later(lambda record: replace(record, sidecars=self._with_settings(record, role)))
        return f"sidecars on {change.name}: {text}"

    def _with_settings(self, record: Record, role: str) -> dict[str, str]:
        return with_settings(record, self._blueprint.spec, role)

    def _node(self, world: World) -> Node:
        found = current_node(world, self._records.current)
        if found is None:
            raise RemoteError("the TPU was replaced meanwhile", changed="nothing was pushed")
        return found

    def _remember(self, operation: Operation | None) -> None:
        if operation is not None:
            # Durable in the record, so that the next process polls it too: only the operation says why
            # a create failed.
            stamped = replace(operation, started_at=operation.started_at or self._clock.now())
            self._records.update_later(
                lambda record: replace(record, operations=(*record.operations, stamped))
            )

    def _refused(self, change: Change, error: TpuctlError, world: World | None) -> None:
        """Record a refusal, so that the next pass waits, tries another zone or gives up."""
        now = self._clock.now()
        if change.kind is Kind.JOB:
            # Failures of long ago say nothing about whether this machine can be reached now.
            known = self._records.current
            recent = now - known.ssh.next_try_at < latest_try(self._blueprint.spec)
            since = known.ssh.failed_since if recent else None
            self._records.update_later(
                lambda record: replace(
                    record, ssh=replace(record.ssh, failed_since=since or now, next_try_at=now + REMOTE_PAUSE)
                )
            )
        elif change.verb in MAKING:
            retry = refusal_of(error.retry, flex=change.flex_start)
            # Not a refusal of the zone: the quota is still held by our own TPU, which is being deleted.
            beside = any(node.zone == change.zone for node in (world.known_nodes if world else ()))
            refusal = Refusal(
                now, change.zone, retry, error.message, change.kind, error.hint,
                on_demand=change.on_demand, beside=beside, code=error.code,
            )  # fmt: skip
            self._records.update_later(lambda record: refused(record, refusal, change.incarnation))


def _as_wait(failure: FailedChange, world: World) -> FailedChange:
    """Return a TPU's refusal as an ordinary wait if a TPU of this deployment holds the zone's quota."""
    change, error = failure.change, failure.error
    held = any(node.zone == change.zone for node in world.known_nodes)
    if not change.requests_tpu or error.retry is not Retry.QUOTA or not held:
        return failure
    # Google's text asks for a higher limit, but the quota is free as soon as the deletion ends.
    text = quota_wait(change.zone).text
    again = "nothing to do: it is requested again by itself"
    later = type(error)(text, hint=again, changed=error.changed, code=error.code)
    return FailedChange(change, later, waiting=text)


def check_disks(vms: Vms, new: NewNode) -> None:
    """
    Check the disks of the *new* node: each is in its zone, and no other machine writes to it.

    Raise UsageError for a disk elsewhere or missing, TransientError while one is in use: the TPU before this
    one keeps its disks until it is deleted.
    """
    for disk in new.disks:
        observed = vms.disk_users(disk.name, new.zone)
        if isinstance(observed, Absent):
            raise UsageError(
                f"there is no disk '{disk.name}' in {new.zone}",
                code="TPU-124",
                hint="see: gcloud compute disks list; then correct tpu.disks or tpu.zones; tpuctl makes none",
                changed=UNCHANGED,
            )
        if isinstance(observed, Unknown):
            if observed.denied:
                continue  # Unknown is no reason to refuse: the create itself fails if the disk is wrong.
            raise TransientError(f"disk '{disk.name}' in {new.zone}: {observed.message}", changed=UNCHANGED)
        if disk.writable and observed.value:
            raise ConflictError(
                f"disk '{disk.name}' in {new.zone} is still used by {', '.join(observed.value)}",
                aborted=True,
                code="TPU-408",
                hint="tpuctl tries again by itself; it detaches nothing that is not its own",
                changed=UNCHANGED,
            )
