"""
Build the bodies of requests for machines, with Python's field names or JSON's.

The VM is an Ubuntu machine, labelled, with a limited lifetime.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.domain.machines.data_disks import DataDisk
from orchestrator.domain.names import region_of
from orchestrator.domain.ports import NetworkInterface, NewNode, NewVm

IMAGE_PROJECT = "ubuntu-os-cloud"
IMAGE_FAMILY = "ubuntu-2404-lts-amd64"
"""An image with cron that is supported until 2029 (docs/facts.md 2.6)."""
ARM_FAMILY = "ubuntu-2404-lts-arm64"
ARM_MACHINES = frozenset({"t2a", "c4a", "n4a", "a4x"})
"""Families of machine types with Arm processors (Google, "Machine families", 2026)."""
_TIMED = frozenset({"queueing_policy", "run_duration"})  # fields that are durations
_MAPS = ("labels", "metadata")  # fields whose keys are data
MIN_RUN_SECONDS, MAX_RUN_SECONDS = 30, 120 * 86400  # limits of maxRunDuration (docs/facts.md 2.3)


def image_family(machine_type: str) -> str:
    """Return the family of the image that a machine type boots."""
    return ARM_FAMILY if machine_type.partition("-")[0] in ARM_MACHINES else IMAGE_FAMILY


def instance_body(new: NewVm) -> dict[str, Any]:
    """
    Return the instance to send (compute v1 Instance, Python field names).

    Guest attributes are enabled, because machines publish their host keys in them.
    """
    metadata = {"enable-guest-attributes": "TRUE", **new.metadata}
    image = new.image or f"projects/{IMAGE_PROJECT}/global/images/family/{image_family(new.machine_type)}"
    disk = {"source_image": image, "disk_size_gb": new.disk_gb, "labels": dict(new.labels)}
    outside = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}] if new.external_ip else []
    return {
        "name": new.name,
        "machine_type": f"zones/{new.zone}/machineTypes/{new.machine_type}",
        "labels": dict(new.labels),
        "metadata": {"items": [{"key": key, "value": value} for key, value in sorted(metadata.items())]},
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [{**_vm_network(new.interface, new.zone), "access_configs": outside}],
        **({"tags": {"items": list(new.interface.tags)}} if new.interface.tags else {}),
        "service_accounts": [{"email": new.service_account, "scopes": list(new.scopes)}],
        "shielded_instance_config": {
            "enable_vtpm": True,
            "enable_integrity_monitoring": True,
            **({"enable_secure_boot": True} if new.secure_boot else {}),
        },
        "scheduling": _scheduling(new),
    }


def node_body(new: NewNode, parent: str) -> dict[str, Any]:
    """
    Return the node to send to *parent*, projects/P/locations/ZONE (tpu v2 Node, Python field names).

    Guest attributes are enabled, because machines publish their host keys in them.
    """
    return {
        "accelerator_type": new.type,
        "runtime_version": new.runtime,
        "network_config": {"enable_external_ips": new.external_ip, **_tpu_network(new)},
        "service_account": {"email": new.service_account, "scope": list(new.scopes)},
        "scheduling_config": {"spot": new.spot},
        "labels": dict(new.labels),
        "metadata": {"enable-guest-attributes": "TRUE", **new.metadata},
        **({"tags": list(new.interface.tags)} if new.interface.tags else {}),
        **({"data_disks": [_attached(disk, parent) for disk in new.disks]} if new.disks else {}),
        **({"shielded_instance_config": {"enable_secure_boot": True}} if new.secure_boot else {}),
    }


def _attached(disk: DataDisk, parent: str) -> dict[str, str]:
    place = parent.replace("/locations/", "/zones/")
    return {"source_disk": f"{place}/disks/{disk.name}", "mode": disk.mode}


def _vm_network(interface: NetworkInterface, zone: str) -> dict[str, str]:
    """
    Return network and subnetwork in Compute Engine's form; a subnetwork only if one is named.

    Without one, Compute Engine takes the region's subnetwork of an auto mode network, and refuses other
    networks.
    """
    network = interface.network if "/" in interface.network else f"global/networks/{interface.network}"
    if not interface.subnetwork:
        return {"network": network}
    return {"network": network, "subnetwork": _subnetwork_path(interface, region_of(zone))}


def _tpu_network(new: NewNode) -> dict[str, str]:
    """Return network and subnetwork for a TPU; a missing value means `default` (tpu v2 NetworkConfig)."""
    interface = new.interface
    if interface == NetworkInterface(tags=interface.tags):
        return {}
    like_network = interface.network.rpartition("/")[2]  # auto mode names its subnetworks so
    subnetwork = interface.subnetwork or like_network
    if "/" in interface.network:
        named = NetworkInterface(interface.network, subnetwork)
        subnetwork = _subnetwork_path(named, region_of(new.zone))
    return {"network": interface.network, "subnetwork": subnetwork}


def _subnetwork_path(interface: NetworkInterface, region: str) -> str:
    """Return the path of a subnetwork; a plain name is in the project of a network given as a path."""
    if "/" in interface.subnetwork:
        return interface.subnetwork
    host = interface.network.partition("global/networks/")[0] if "/" in interface.network else ""
    return f"{host}regions/{region}/subnetworks/{interface.subnetwork}"


def queued_body(new: NewNode, parent: str, wait: float | None) -> dict[str, Any]:
    """
    Return the queued resource to send for one node (tpu v2 QueuedResource, Python field names).

    Flex-start needs two more fields, which only v2alpha1 knows. Spot is the tier of the queued resource, not
    a field of its node. *wait* is in seconds, cut to whole ones.
    """
    node = {key: value for key, value in node_body(new, parent).items() if key != "scheduling_config"}
    spec = {"parent": parent, "node_id": new.name, "node": node}
    tier: dict[str, Any] = {"spot": {}} if new.spot else {}
    until = {"valid_until_duration": {"seconds": max(1, int(wait))}} if wait is not None else {}
    policy = {"queueing_policy": until} if until else {}
    reserved = {"reservation_name": _reservation_path(new, parent)} if new.reservation else {}
    return {"tpu": {"node_spec": [spec]}, **tier, **policy, **reserved, **_flex_start(new)}


def _flex_start(new: NewNode) -> dict[str, Any]:
    if not new.run_seconds:
        return {}
    run = {"max_run_duration": {"seconds": max(1, int(new.run_seconds))}}
    return {"provisioning_model": "FLEX_START", "run_duration": run}


def queued_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queued resource as JSON; a tier without fields is sent too, a duration is a string."""
    sent = as_json({key: value for key, value in body.items() if key not in _TIMED}, presence=False)
    if "spot" in body:
        sent["spot"] = {}
    for key in _TIMED & body.keys():
        timed = {_camel(name): f"{value['seconds']}s" for name, value in body[key].items()}
        sent[_camel(key)] = timed
    return sent


def _reservation_path(new: NewNode, parent: str) -> str:
    """Return the full name of a reservation, which the API needs; a plain name means our own project."""
    return new.reservation if "/" in new.reservation else f"{parent}/reservations/{new.reservation}"


def _scheduling(new: NewVm) -> dict[str, Any]:
    """
    Return how the machine may be preempted and when it ends.

    instanceTerminationAction is one field for two events, preemption and the end of maxRunDuration. A spot VM
    must keep its disk when preempted, so the action is STOP, also at the end of its time to live: compute
    costs end there, and the disk stays until `down` deletes it. A standard VM is deleted at that end.
    """
    seconds = int(min(max(new.ttl, MIN_RUN_SECONDS), MAX_RUN_SECONDS))
    limit = {"max_run_duration": {"seconds": seconds}}
    if new.spot:
        return {
            **limit,
            "provisioning_model": "SPOT",
            "instance_termination_action": "STOP",
            "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
        }
    return {
        **limit,
        "provisioning_model": "STANDARD",
        "instance_termination_action": "DELETE",
        "automatic_restart": True,
    }


def as_json(body: Mapping[str, Any], *, presence: bool) -> dict[str, Any]:
    """
    Return *body* as the clients write it: camel case, and int64 (our only numbers) as strings.

    Empty lists and maps are left out; without *presence* of fields (tpu v2; compute v1 has it) empty texts
    and False are, too.
    """
    shown = {_camel(key): _as_json(key, value, presence) for key, value in body.items()}
    return {key: value for key, value in shown.items() if not _omitted(value, presence)}


def _as_json(key: str, value: Any, presence: bool) -> Any:
    if isinstance(value, Mapping):
        return dict(value) if key in _MAPS else as_json(value, presence=presence)
    if isinstance(value, list):
        return [_as_json("", item, presence) for item in value]
    return str(value) if type(value) is int else value


def _omitted(value: Any, presence: bool) -> bool:
    return not value if not presence else isinstance(value, dict | list) and not value


def _camel(name: str) -> str:
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)
