"""Start spot VMs that were stopped, and name the TPU nodes that were preempted."""

import google.auth
from google.cloud import compute_v1, tpu_v2


def start_stopped(zone):
    """Start every stopped VM of the zone; return their names."""
    _, project = google.auth.default()
    vms = compute_v1.InstancesClient()
    stopped = [vm.name for vm in vms.list(project=project, zone=zone) if vm.status == "TERMINATED"]
    for operation in [vms.start(project=project, zone=zone, instance=name) for name in stopped]:
        operation.result(timeout=300)
    return stopped


def lost_nodes(zone):
    """Return the names of the TPU nodes of the zone that were preempted."""
    _, project = google.auth.default()
    client = tpu_v2.TpuClient(transport="rest")
    nodes = client.list_nodes(parent=f"projects/{project}/locations/{zone}")
    return [node.name.rsplit("/", 1)[-1] for node in nodes if node.state == tpu_v2.Node.State.PREEMPTED]
