"""
Adopt a TPU, VM or bucket that tpuctl did not create, and give it back.

The steps for a TPU are ordered so that a kill at any line never makes the deployment delete a TPU that does
not run our agent, and never lets two TPUs run the job under the same incarnation. A VM is labelled first, so
that `down` finds what a killed command left on it; while its label says `pending`, only giving it back is
allowed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.clock import wait_until
from orchestrator.domain import names
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.observation import (
    Absent,
    ForeignBucket,
    ForeignNode,
    ForeignVm,
    Node,
    Operation,
    Present,
    Vm,
    World,
)
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import next_incarnation
from orchestrator.domain.remote import Host, RunResult
from orchestrator.domain.remote_script import RemoteScript
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.reconcile.deliver import START_TIMEOUT, node_hosts
from orchestrator.engine.routes import vm_host
from orchestrator.errors import RemoteError, TpuctlError, TransientError, UsageError
from orchestrator.planning.tpu.race import accepted, with_request
from orchestrator.scripts.render import Scripts, stop_seconds
from orchestrator.scripts.shipped import begin_script, remote_script

UPDATE_TIMEOUT = 180.0
"""Seconds to wait for the update of a node or VM (our choice; Google documents no limit)."""
SSH_TIMEOUT = 180.0
"""Seconds to wait until the guest agent has installed our SSH key (our choice)."""


def take_bucket(deployment: Deployment, found: ForeignBucket, at_down: str) -> None:
    """
    Label a bucket as the deployment's. The next `up` grants the machines access to it.

    Raise ConflictError if the bucket's settings have changed since *found* was read.
    """
    bucket = found.bucket
    change = Change(Kind.BUCKET, Verb.UPDATE, bucket.name, "adopted", bucket.location)
    # Not in the bucket's own journal: nothing is written into a bucket before it carries our label.
    entry = deployment.journal.intend(change, in_bucket=False)
    labels = {**names.labels(deployment.spec, "bucket"), names.ADOPTED_LABEL: at_down}
    try:
        deployment.cloud.buckets.add_labels(bucket.name, labels, found.version)
    except TpuctlError as error:
        deployment.journal.result(entry, f"{error.code} {error.message}", in_bucket=False)
        raise
    deployment.journal.result(entry, "ok", in_bucket=False)


def take_vm(deployment: Deployment, found: ForeignVm, at_down: str) -> None:
    """
    Label a VM, add our SSH key, prepare it over SSH, and only then record it as the deployment's.

    *at_down* is the value of `names.ADOPTED_LABEL`: what `down` does with the VM. Raise the TpuctlError of
    the step that failed; `down` finds a half-prepared VM by its label.
    """
    vm, labels = found.vm, names.labels(deployment.spec, "vm")
    change = Change(Kind.VM, Verb.UPDATE, vm.name, "adopted", vm.zone)
    vms, key = deployment.cloud.vms, deployment.blueprint.public_key
    deployment.lease.keep()
    entry = deployment.journal.intend(change, in_bucket=True)
    try:
        # The label fingerprint is the lock: of two deployments that adopt the VM at once, one is refused.
        pending = {**labels, names.ADOPTED_LABEL: names.ADOPTING}
        settle(deployment, vms.add_labels(vm.name, vm.zone, pending, found.version))
        settle(deployment, vms.admit(vm.name, vm.zone, key))
        _prepare_vm(deployment, vm)
        # Preparing the VM may have taken minutes, in which another process could have taken the lease.
        deployment.lease.keep()
        settle(deployment, vms.add_labels(vm.name, vm.zone, {names.ADOPTED_LABEL: at_down}))
    except TpuctlError as error:
        deployment.journal.result(entry, f"{error.code} {error.message}", in_bucket=True)
        raise
    deployment.journal.result(entry, "ok", in_bucket=True)
    deployment.sink(
        Event(
            deployment.clock.now(),
            EventKind.VM_ADOPTED,
            f"VM {vm.name} is part of {deployment.spec.name} now",
        )
    )


def _prepare_vm(deployment: Deployment, vm: Vm) -> None:
    """Check that the VM has what our scripts need, then run the startup script, which no boot has run."""
    host = _reached(deployment, lambda: [_vm_host(deployment, vm)])
    check = remote_script("check-vm", deployment.spec.name)
    (answer,) = deployment.cloud.remote.run_elevated(host, check, 60.0)
    if answer.exit_code != 0:
        raise UsageError(
            f"{vm.name} is not fit to be the VM: {_last_line(answer)}",
            hint="fix that, then run this again; or give it back: tpuctl down", code="TPU-147",
        )  # fmt: skip
    scripts = deployment.blueprint.scripts("vm", deployment.records.current)
    _start_up(deployment, host, scripts)


def _start_up(deployment: Deployment, hosts: Sequence[Host], scripts: Scripts) -> None:
    """Run the startup script as root on every host. Raise RemoteError."""
    # As a file: Linux refuses an argument above 128 KiB, and the script may have 256 KiB.
    deployment.cloud.remote.put(hosts, scripts.startup.encode(), "startup", 0o700)
    run_on_hosts(deployment, hosts, remote_script("run-startup"))


def _vm_host(deployment: Deployment, vm: Vm) -> Host:
    return vm_host(deployment.cloud, World(Absent(), Present(vm), Present(()), Present(())))


def _reached(deployment: Deployment, find: Callable[[], list[Host]]) -> list[Host]:
    """Return the hosts that *find* yields once all accept our key; raise RemoteError after SSH_TIMEOUT."""
    failure: TpuctlError | None = None
    hosts: list[Host] = []

    def reached() -> bool:
        nonlocal failure, hosts
        try:
            hosts = find()
            deployment.cloud.remote.run(hosts, "true", 30.0)
        except RemoteError as error:
            # Expected at first: the guest agent needs some seconds to install the key.
            failure = error
            return False
        return True

    if not wait_until(reached, deployment.clock, SSH_TIMEOUT, 3.0):
        raise failure or RemoteError("the machines cannot be reached")
    return hosts


def run_on_hosts(deployment: Deployment, hosts: Sequence[Host], script: RemoteScript) -> None:
    """Run *script* as root on every host. Raise RemoteError for the first host on which it fails."""
    timeout = START_TIMEOUT + stop_seconds(deployment.spec)
    for host, one in zip(hosts, deployment.cloud.remote.run_elevated(hosts, script, timeout), strict=True):
        if one.exit_code != 0:
            raise RemoteError(f"{host.name}: the machine could not be prepared: {_last_line(one)}")


def _last_line(done: RunResult) -> str:
    return (done.stderr.strip().splitlines() or [f"status {done.exit_code}"])[-1]


def settle(deployment: Deployment, operation: Operation, hint: str = "") -> None:
    """Wait UPDATE_TIMEOUT for an update; raise TransientError with *hint* if it fails or does not end in time."""
    last, adapter = "", deployment.cloud.nodes if operation.kind is Kind.NODE else deployment.cloud.vms
    what = f"{'TPU' if operation.kind is Kind.NODE else 'VM'} {operation.name}"

    def done() -> bool:
        nonlocal last
        result = adapter.poll(operation)
        last = result.message
        if result.done and result.retry is not None:
            raise TransientError(f"{what}: {result.message}", hint=result.hint or hint)
        return result.done or result.forgotten

    if not wait_until(done, deployment.clock, UPDATE_TIMEOUT, 1.0):
        raise TransientError(f"{what}: its update does not end {last}".rstrip(), hint=hint)


@dataclass(frozen=True)
class Adoption:
    """Adopt one machine, or give it back; *ssh_key* is the line to add to its metadata."""

    deployment: Deployment
    ssh_key: str

    def take(self, found: ForeignNode, world: World, at_down: str = "yes") -> int:
        """
        Prepare the TPU's workers, start the agent there, label the TPU, and return its new incarnation.

        Raise the TpuctlError of the step that failed, after its result is in the journal.
        """
        deployment, node = self.deployment, found.node
        number = next_incarnation(deployment.records.current)
        # Take the number first: after a kill from here on, any new TPU has a larger number and fences this one.
        deployment.lease.keep()
        deployment.records.update(lambda r: replace(r, node=replace(r.node, highest=number)))
        change = Change(Kind.NODE, Verb.UPDATE, node.name, "adopted", node.zone, number, type=found.type)
        entry = deployment.journal.intend(change, in_bucket=True)
        try:
            settle(deployment, deployment.cloud.nodes.add_labels(node.name, node.zone, {}, self.ssh_key))
            self._prepare(node, number, world)
            deployment.lease.keep()
            now = deployment.clock.now()
            # Recorded before it is labelled: a labelled TPU that the record does not know would be deleted.
            deployment.records.update(
                lambda r: accepted(with_request(r, node.zone, number, 0, now, found.type), number)
            )
            labels = {**names.labels(deployment.spec, "tpu", number), names.ADOPTED_LABEL: at_down}
            settle(deployment, deployment.cloud.nodes.add_labels(node.name, node.zone, labels, self.ssh_key))
        except TpuctlError as error:
            deployment.journal.result(entry, f"{error.code} {error.message}", in_bucket=True)
            raise
        deployment.journal.result(entry, "ok", in_bucket=True)
        deployment.sink(
            Event(deployment.clock.now(), EventKind.TPU_ADOPTED, f"{node.name} is TPU #{number} now")
        )
        return number

    def give_back(self, machine: Node | Vm) -> None:
        """Return a machine to its owner: remove our SSH key and, last, the labels by which a retry finds it."""
        deployment, name, zone = self.deployment, machine.name, machine.zone
        vms, is_vm = deployment.cloud.vms, isinstance(machine, Vm)
        number = None if isinstance(machine, Vm) else machine.incarnation
        change = Change(Kind.VM if is_vm else Kind.NODE, Verb.UPDATE, name, "given back", zone, number)
        entry = deployment.journal.intend(change, in_bucket=False)
        steps: tuple[Callable[[], Operation | None], ...] = (
            (lambda: vms.expel(name, zone, self.ssh_key), lambda: vms.remove_labels(name, zone, names.LABELS))
            if is_vm
            else (lambda: deployment.cloud.nodes.remove_labels(name, zone, names.LABELS, self.ssh_key),)
        )
        for step in steps:
            operation = step()
            if operation is not None:
                settle(deployment, operation, "its labels may still be there; run again: tpuctl down")
        deployment.journal.result(entry, "ok", in_bucket=False)
        what, kind = ("VM", EventKind.VM_GIVEN_BACK) if is_vm else ("TPU", EventKind.TPU_GIVEN_BACK)
        deployment.sink(Event(deployment.clock.now(), kind, f"{what} {name} is given back"))

    def stop_job(self, machine: Node | Vm, world: World) -> None:
        """Stop our agent on the machine for good, its cron entry included. Raise RemoteError."""
        deployment = self.deployment
        is_vm = isinstance(machine, Vm)
        hosts = (
            [_vm_host(deployment, machine)]
            if isinstance(machine, Vm)
            else node_hosts(deployment.cloud, machine, world)
        )
        seconds = stop_seconds(deployment.spec)
        script = remote_script("give-back", str(int(seconds)))
        done_on_all = deployment.cloud.remote.run_elevated(hosts, script, seconds + (60 if is_vm else 30))
        for host, done in zip(hosts, done_on_all, strict=True):
            if done.exit_code != 0:
                raise RemoteError(f"{host.name}: {done.stderr.strip() or f'status {done.exit_code}'}")

    def _prepare(self, node: Node, number: int, world: World) -> None:
        """Run the startup script over SSH on every worker, because no boot has run it there."""
        deployment = self.deployment
        scripts = deployment.blueprint.scripts(
            "tpu", deployment.records.current, incarnation=number, node=node.name, zone=node.zone
        )
        hosts = _reached(deployment, lambda: node_hosts(deployment.cloud, node, world))
        _start_up(deployment, hosts, scripts)
        run_on_hosts(deployment, hosts, begin_script(restart=True))
