"""
The VM that we ask for: a Debian machine with an outside address, labelled, with a limited life.
"""

from typing import Any

from orchestrator.ports import VmOrder

IMAGE = "projects/debian-cloud/global/images/family/debian-12"
NETWORK = "global/networks/default"
MIN_RUN_SECONDS, MAX_RUN_SECONDS = 30, 120 * 86400  # limits of maxRunDuration (docs/facts.md 2.3)


def instance_body(order: VmOrder) -> dict[str, Any]:
    """
    Return the instance to send (compute v1 Instance, python field names).

    Guest attributes are switched on, because they are how a machine tells us its host keys.
    """
    metadata = {"enable-guest-attributes": "TRUE", **order.metadata}
    disk = {"source_image": IMAGE, "disk_size_gb": order.disk_gb, "labels": dict(order.labels)}
    outside = {"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}
    return {
        "name": order.name,
        "machine_type": f"zones/{order.zone}/machineTypes/{order.machine}",
        "labels": dict(order.labels),
        "metadata": {"items": [{"key": key, "value": value} for key, value in sorted(metadata.items())]},
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [{"network": NETWORK, "access_configs": [outside]}],
        "service_accounts": [{"email": order.service_account, "scopes": list(order.scopes)}],
        "shielded_instance_config": {"enable_vtpm": True, "enable_integrity_monitoring": True},
        "scheduling": _scheduling(order),
    }


def _scheduling(order: VmOrder) -> dict[str, Any]:
    """
    Return how the machine may be taken away and when it ends.

    instanceTerminationAction is one field for two events, preemption and the end of maxRunDuration. A
    spot VM must keep its disk when preempted, so it is STOP, at the end of the time to live as well:
    compute time ends there, the disk stays until `down` deletes it. A standard VM is deleted at that end.
    """
    seconds = int(min(max(order.ttl, MIN_RUN_SECONDS), MAX_RUN_SECONDS))
    limit = {"max_run_duration": {"seconds": seconds}}
    if order.spot:
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
