"""Convert VMs, disks and operations to Compute Engine's JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.emulator.http.error_bodies import compute_failure
from orchestrator.emulator.state.identifiers import compute_timestamp, fingerprint
from orchestrator.emulator.state.tables import region_of
from orchestrator.emulator.state.values.instance import Disk, Instance, Status
from orchestrator.emulator.state.values.operation import Operation

SITE = "https://www.googleapis.com/compute/v1/"


def link(path: str) -> str:
    """Return the selfLink of *path* (from `projects/` on)."""
    return SITE + path


def named_resource(kind: str, path: str, numeric_id: int, **fields: object) -> dict[str, Any]:
    """Return the fields common to all resources, plus *fields*."""
    common = {"kind": f"compute#{kind}", "id": str(numeric_id), "name": path.rsplit("/", 1)[-1]}
    return {**common, "selfLink": link(path), **fields}


def instance_json(instance: Instance, disks: Mapping[tuple[str, str], Disk]) -> dict[str, Any]:
    zone = f"projects/{instance.project}/zones/{instance.zone}"
    shown = named_resource(
        "instance",
        instance.path,
        instance.numeric_id,
        zone=link(zone),
        machineType=link(f"{zone}/machineTypes/{instance.type.name}"),
        status=instance.status.value,
        creationTimestamp=compute_timestamp(instance.created),
        description=instance.body.get("description", ""),
        labels=instance.labels,
        labelFingerprint=fingerprint(instance.labels),
        metadata={
            "kind": "compute#metadata",
            "fingerprint": fingerprint(instance.metadata),
            "items": [{"key": key, "value": value} for key, value in instance.metadata.items()],
        },
        tags={"fingerprint": fingerprint(list(instance.tags)), "items": list(instance.tags)},
        scheduling=instance.scheduling,
        networkInterfaces=[_interface(instance)],
        disks=[_attached(instance, index, disks) for index in range(len(instance.disks))],
        serviceAccounts=[
            {"email": email, "scopes": list(instance.scopes)} for email in [instance.service_account] if email
        ],
        canIpForward=bool(instance.body.get("canIpForward")),
        deletionProtection=bool(instance.body.get("deletionProtection")),
        cpuPlatform="Unknown CPU Platform",
        startRestricted=False,
        fingerprint=fingerprint([instance.path, instance.epoch]),
    )
    return shown | _times(instance)


def _times(instance: Instance) -> dict[str, Any]:
    times: dict[str, Any] = {}
    if instance.last_start is not None:
        times["lastStartTimestamp"] = compute_timestamp(instance.last_start)
    if instance.last_stop is not None:
        times["lastStopTimestamp"] = compute_timestamp(instance.last_stop)
    if instance.deadline is not None:
        ends = {"terminationTimestamp": compute_timestamp(instance.deadline)}
        times["resourceStatus"] = {"scheduling": ends}
    return times


def _interface(instance: Instance) -> dict[str, Any]:
    wanted = (instance.body.get("networkInterfaces") or [{}])[0]
    project = f"projects/{instance.project}"
    subnet = f"{project}/regions/{region_of(instance.zone)}/subnetworks/{instance.subnetwork}"
    shown: dict[str, Any] = {
        "kind": "compute#networkInterface",
        "name": "nic0",
        "network": link(f"{project}/global/networks/{instance.network}"),
        "subnetwork": link(subnet),
        "networkIP": instance.address,
        "fingerprint": fingerprint(instance.address),
    }
    if wanted.get("accessConfigs"):
        up = instance.status in (Status.RUNNING, Status.STOPPING)
        nat = {"natIP": instance.address} if up else {}
        external = {"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "name": "External NAT"}
        shown["accessConfigs"] = [{**external, **nat}]
    return shown


def _attached(instance: Instance, index: int, disks: Mapping[tuple[str, str], Disk]) -> dict[str, Any]:
    attachment = instance.disks[index]
    disk = disks[instance.zone, attachment.disk]
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "source": link(f"projects/{instance.project}/zones/{instance.zone}/disks/{disk.name}"),
        "deviceName": attachment.device,
        "index": index,
        "boot": attachment.boot,
        "autoDelete": attachment.auto_delete,
        "interface": "SCSI",
        "diskSizeGb": str(disk.size_gib),
    }


def disk_json(project: str, disk: Disk, users: Sequence[str]) -> dict[str, Any]:
    """Return a Disk and its users."""
    zone = f"projects/{project}/zones/{disk.zone}"
    return named_resource(
        "disk",
        f"{zone}/disks/{disk.name}",
        disk.numeric_id,
        zone=link(zone),
        status="READY",
        sizeGb=str(disk.size_gib),
        type=link(f"{zone}/diskTypes/{disk.type}"),
        sourceImage=link(disk.image) if disk.image else "",
        users=[link(user) for user in users],
        labels=disk.labels,
        labelFingerprint=fingerprint(disk.labels),
        creationTimestamp=compute_timestamp(disk.created),
    )


def operation_json(project: str, operation: Operation) -> dict[str, Any]:
    """Return an Operation: RUNNING, or DONE, with the three error fields if it failed."""
    path = f"projects/{project}/{operation.scope}/operations/{operation.name}"
    shown = named_resource(
        "operation",
        path,
        operation.numeric_id,
        operationType=operation.verb,
        targetLink=link(operation.target),
        targetId=str(operation.target_id),
        status="DONE" if operation.done else "RUNNING",
        progress=100 if operation.done else 0,
        user=operation.user,
        insertTime=compute_timestamp(operation.created),
        startTime=compute_timestamp(operation.created),
    )
    kind, _, name = operation.scope.partition("/")
    if name:
        shown[kind.removesuffix("s")] = link(f"projects/{project}/{operation.scope}")
    if operation.request_id:
        shown["clientOperationId"] = operation.request_id
    if operation.ended is not None:
        shown["endTime"] = compute_timestamp(operation.ended)
    if operation.verb == "compute.instances.preempted":
        shown["statusMessage"] = "Instance was preempted."
    return shown | (compute_failure(operation.error) if operation.error else {})
