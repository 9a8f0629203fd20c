"""Manage VMs over Compute Engine v1."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.domain.all_zones import AllZones, ObservedAllZones
from orchestrator.domain.observation import (
    Absent,
    ForeignVm,
    Observed,
    Operation,
    OperationResult,
    Vm,
    VmState,
)
from orchestrator.domain.plan import Verb
from orchestrator.domain.ports import NewVm
from orchestrator.errors import NotFoundError, TransientError
from orchestrator.google import operations
from orchestrator.google.bodies import instance_body
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.guest_host_keys import public_keys
from orchestrator.google.request_ids import RequestIds
from orchestrator.google.unknown_on_error import across_zones, all_zones_observed, observed

# The most that the API puts on a page (docs/facts.md 2.1).
PAGE = 500
# The second one only says that a zone has none, which is an answer (docs/facts.md 2.1).
_COMPLETE = ("", "NO_RESULTS_ON_PAGE")
_SSH_KEYS, _OS_LOGIN = "ssh-keys", "enable-oslogin"
_TRUE = frozenset({"true", "1", "yes", "y"})


class ComputeVms:
    """Observe, create, start and delete VMs of one project."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._ids = RequestIds()

    def observe(self, name: str, zone: str) -> Observed[Vm]:
        """Observe one VM; errors become Unknown."""
        return observed(lambda: self._get(name, zone))

    def disk_users(self, name: str, zone: str) -> Observed[tuple[str, ...]]:
        """Observe a disk of any owner: Present with the machines that use it, Absent if it does not exist."""

        def read() -> tuple[str, ...]:
            client = self._clients.compute("disks", "DisksClient")
            with translated(f"read disk '{name}' in {zone}"):
                found = client.get(
                    project=self._clients.project, zone=zone, disk=name, **self._clients.reading
                )
            return tuple(user.rpartition("/")[2] for user in found.users)

        return observed(read)

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[Vm, ...]]:
        """List the VMs with the label in *zones*, all pages."""
        return across_zones(zones, lambda zone: self._listed(label, value, zone))

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[Vm]:
        """List the VMs with the label in all zones by one call; places without an answer are named."""
        return all_zones_observed(lambda: self._list_all_zones(label, value))

    def create(self, new: NewVm) -> Operation:
        """
        Request the VM; raise ConflictError if the name is taken.

        The request id makes a repeat after a lost answer the same operation. An operation that has succeeded
        without a VM belongs to an earlier VM: then the next id is used.
        """
        body = instance_body(new)
        answer = self._insert(new, body)
        # Only for a VM that is certainly Absent: while it cannot be observed, a second insert might create
        # a second VM.
        if self._is_memory(answer, new):
            self._ids.spend(answer.name)
            answer = self._insert(new, body)
        return operations.of_compute(answer, Verb.CREATE, new.name, new.zone)

    def start(self, name: str, zone: str) -> Operation:
        """Request the start of a stopped VM."""
        with translated(f"start VM '{name}' in {zone}"):
            where = self._where(name, zone)
            answer = self._clients.instances.start_unary(**where, **self._clients.mutating)
        return operations.of_compute(answer, Verb.START, name, zone)

    def stop(self, name: str, zone: str) -> Operation | None:
        """Request the stop of a VM, which keeps its disk; None if it does not exist."""
        try:
            with translated(f"stop VM '{name}' in {zone}"):
                where = self._where(name, zone)
                answer = self._clients.instances.stop_unary(**where, **self._clients.mutating)
        except NotFoundError:
            return None
        return operations.of_compute(answer, Verb.STOP, name, zone)

    def delete(self, name: str, zone: str) -> Operation | None:
        """Request the deletion; None if it does not exist. Its boot disk is deleted with it (autoDelete)."""
        try:
            with translated(f"delete VM '{name}' in {zone}"):
                where = self._where(name, zone)
                answer = self._clients.instances.delete_unary(**where, **self._clients.mutating)
        # Google's own 404 only; one of a proxy is another error, and proves nothing.
        except NotFoundError:
            return None
        return operations.of_compute(answer, Verb.DELETE, name, zone)

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once; a DONE operation that carries an error is a failure."""
        clients = self._clients
        result = operations.poll_compute(clients.zone_operations, clients.project, operation, clients.reading)
        if result.retry is not None or result.forgotten:
            # It has failed, or may have: the same id would only return the same failure.
            self._ids.spend(operation.id)
        return result

    def host_keys(self, name: str, zone: str) -> tuple[str, ...]:
        """
        Return the machine's public host keys (`ssh-ed25519 AAAA...`) from its guest attributes.

        Raise NotFoundError while the machine has not published any.
        """
        what = f"read the host keys of VM '{name}' in {zone}"
        request = {**self._where(name, zone), "query_path": "hostkeys/"}
        with translated(what):
            answer = self._clients.instances.get_guest_attributes(request=request, **self._clients.reading)
        return public_keys(answer.query_value.items, what)

    def inspect(self, name: str, zone: str) -> Observed[ForeignVm]:
        """Observe one VM of any owner, with what an adoption needs to know; errors become Unknown."""

        def read() -> ForeignVm:
            found, project = self._instance(name, zone), self._clients.project
            with translated(f"read project '{project}'"):
                shared = self._clients.projects.get(project=project, **self._clients.reading)
            # The instance's own metadata takes precedence over the project's.
            keys = {**_items(shared.common_instance_metadata), **_items(found.metadata)}
            interface = found.network_interfaces[0].network if found.network_interfaces else ""
            return ForeignVm(
                vm=vm_of(found, zone),
                account=next((one.email for one in found.service_accounts), ""),
                network=interface.rpartition("/")[2],
                os_login=keys.get(_OS_LOGIN, "").strip().lower() in _TRUE,
                protected=found.deletion_protection,
                lasting=tuple(d.source.rpartition("/")[2] for d in found.disks if not d.auto_delete),
                version=found.label_fingerprint,
            )

        return observed(read)

    def add_labels(self, name: str, zone: str, labels: Mapping[str, str], version: str = "") -> Operation:
        """
        Request additional *labels*; raise ConflictError if the VM's labels are no longer those of *version*.

        The API replaces all labels, and refuses it if they have changed since they were read.
        """
        found = self._instance(name, zone)
        return self._relabel(found, zone, {**found.labels, **labels}, version or found.label_fingerprint)

    def remove_labels(self, name: str, zone: str, labels: Sequence[str]) -> Operation | None:
        """Request the removal of *labels*; None if the VM does not exist."""
        try:
            found = self._instance(name, zone)
        except NotFoundError:
            return None
        others = {key: value for key, value in found.labels.items() if key not in labels}
        return self._relabel(found, zone, others, found.label_fingerprint)

    def admit(self, name: str, zone: str, ssh_key: str) -> Operation:
        """Request an additional SSH key in the VM's metadata."""
        found = self._instance(name, zone)
        return self._rekey(found, zone, [*_keys_but(found, ssh_key), ssh_key])

    def expel(self, name: str, zone: str, ssh_key: str) -> Operation | None:
        """Request the removal of this SSH key from the VM's metadata; None if the VM does not exist."""
        try:
            found = self._instance(name, zone)
        except NotFoundError:
            return None
        return self._rekey(found, zone, _keys_but(found, ssh_key))

    def _relabel(self, found: Any, zone: str, labels: Mapping[str, str], version: str) -> Operation:
        body = {"labels": dict(labels), "label_fingerprint": version}
        request = {**self._where(found.name, zone), "instances_set_labels_request_resource": body}
        with translated(f"label VM '{found.name}' in {zone}"):
            answer = self._clients.instances.set_labels_unary(request=request, **self._clients.mutating)
        return operations.of_compute(answer, Verb.UPDATE, found.name, zone)

    def _rekey(self, found: Any, zone: str, keys: Sequence[str]) -> Operation:
        items = {**_items(found.metadata), _SSH_KEYS: "\n".join(keys)}
        if not keys:
            del items[_SSH_KEYS]
        body = {
            # If gcloud has changed the metadata since we read it, this is a 412 and overwrites nothing (facts 2.4).
            "fingerprint": found.metadata.fingerprint,
            "items": [{"key": key, "value": value} for key, value in items.items()],
        }
        request = {**self._where(found.name, zone), "metadata_resource": body}
        with translated(f"change the SSH keys of VM '{found.name}' in {zone}"):
            answer = self._clients.instances.set_metadata_unary(request=request, **self._clients.mutating)
        return operations.of_compute(answer, Verb.UPDATE, found.name, zone)

    def _is_memory(self, answer: Any, new: NewVm) -> bool:
        done = answer.status is type(answer).Status.DONE
        if not done or operations.compute_error(answer, "") is not None:
            return False
        return isinstance(self.observe(new.name, new.zone), Absent)

    def _insert(self, new: NewVm, body: dict[str, Any]) -> Any:
        request_id = self._ids.of(new.zone, body)
        request = {
            "project": self._clients.project,
            "zone": new.zone,
            "request_id": request_id,
            "instance_resource": body,
        }
        with translated(f"create VM '{new.name}' in {new.zone}"):
            # Without `_unary` a future is returned whose own client asks Google, whatever the endpoint (facts 2.1).
            answer = self._clients.instances.insert_unary(request=request, **self._clients.mutating)
        self._ids.used(request_id, answer.name)
        return answer

    def _get(self, name: str, zone: str) -> Vm:
        return vm_of(self._instance(name, zone), zone)

    def _instance(self, name: str, zone: str) -> Any:
        with translated(f"read VM '{name}' in {zone}"):
            return self._clients.instances.get(**self._where(name, zone), **self._clients.reading)

    def _listed(self, label: str, value: str, zone: str) -> list[Vm]:
        found: list[Vm] = []
        with translated(f"list VMs in {zone}"):
            request = {
                "project": self._clients.project,
                "zone": zone,
                "filter": f"labels.{label}={value}",
                "max_results": PAGE,
            }
            answer = self._clients.instances.list(request=request, **self._clients.reading)
            for page in answer.pages:
                # A zone that is down answers 200 with a warning and no VMs, which is no proof of absence.
                if page.warning.code not in _COMPLETE:
                    raise TransientError(f"list VMs in {zone}: incomplete answer ({page.warning.code})")
                found += [vm_of(instance, zone) for instance in page.items]
        return [vm for vm in found if vm.labels.get(label) == value]

    def _list_all_zones(self, label: str, value: str) -> AllZones[Vm]:
        found: list[Vm] = []
        gaps: list[str] = []
        with translated("list VMs in all zones"):
            request = {
                "project": self._clients.project,
                "filter": f"labels.{label}={value}",
                "max_results": PAGE,
            }
            answer = self._clients.instances.aggregated_list(request=request, **self._clients.reading)
            for page in answer.pages:
                gaps += page.unreachables
                for scope, held in page.items.items():
                    if held.warning.code not in _COMPLETE:
                        gaps.append(scope)
                    found += [vm_of(instance, scope.rpartition("/")[2]) for instance in held.instances]
        places = dict.fromkeys(gap.rpartition("/")[2] for gap in gaps)
        ours = [vm for vm in found if vm.labels.get(label) == value]
        return AllZones(tuple(sorted(ours, key=lambda vm: (vm.zone, vm.name))), tuple(sorted(places)))

    def _where(self, name: str, zone: str) -> dict[str, str]:
        return {"project": self._clients.project, "zone": zone, "instance": name}


def _items(metadata: Any) -> dict[str, str]:
    return {item.key: item.value for item in metadata.items}


def _keys_but(instance: Any, ssh_key: str) -> list[str]:
    """Return the SSH keys in a VM's metadata without *ssh_key*."""
    lines = _items(instance.metadata).get(_SSH_KEYS, "").splitlines()
    return [line for line in lines if line and line != ssh_key]


def vm_of(instance: Any, zone: str) -> Vm:
    """Convert a compute v1 Instance to our value."""
    interface = instance.network_interfaces[0] if instance.network_interfaces else None
    access = interface.access_configs[0] if interface and interface.access_configs else None
    scheduling = instance.scheduling
    return Vm(
        name=instance.name,
        zone=zone,
        state=_state(instance.status),
        internal_ip=interface.network_i_p if interface else "",
        external_ip=access.nat_i_p if access else "",
        labels=dict(instance.labels),
        # The older form, of a VM that others created, can be taken away as well (docs/facts.md 2.3).
        spot=scheduling.provisioning_model == "SPOT" or scheduling.preemptible,
        machine_type=instance.machine_type.rsplit("/", 1)[-1],
        disk_gb=sum(disk.disk_size_gb for disk in instance.disks if disk.boot),
        scopes=tuple(scope for account in instance.service_accounts for scope in account.scopes),
        started_at=operations.epoch(instance.last_start_timestamp),
        stopped_at=operations.epoch(instance.last_stop_timestamp),
    )


def _state(status: str) -> VmState:
    """Return the state; STOPPED is an older word for TERMINATED."""
    word = "TERMINATED" if status == "STOPPED" else status
    return VmState(word) if word in VmState.__members__ else VmState.OTHER
