"""Convert nodes, queued resources and operations to the TPU API's JSON."""

from typing import Any

from orchestrator.emulator.http.error_bodies import tpu_status
from orchestrator.emulator.state.body_shapes import ONLY_ALPHA
from orchestrator.emulator.state.identifiers import timestamp
from orchestrator.emulator.state.slices import PORT
from orchestrator.emulator.state.values.node import Health, Node
from orchestrator.emulator.state.values.operation import Operation
from orchestrator.emulator.state.values.queued import QueuedResource, QueuedState

_TYPE = "type.googleapis.com/google.cloud.tpu.v2."


def node_json(node: Node) -> dict[str, Any]:
    """Return a Node, with enum names and 64-bit integers as strings."""
    network = {"network": "default", "subnetwork": "default", **node.body.get("networkConfig", {})}
    external = bool(network.get("enableExternalIps"))
    shown = {
        **node.body,
        "name": node.path,
        "id": str(node.numeric_id),
        "state": node.state.name,
        "createTime": timestamp(node.created),
        "apiVersion": "V2",
        "networkConfig": network,
        "serviceAccount": {"email": node.service_account, "scope": list(node.scopes)},
        "schedulingConfig": {"preemptible": node.preemptible, **node.body.get("schedulingConfig", {})},
        "acceleratorConfig": {
            "type": node.accelerator.config_type,
            "topology": node.accelerator.topology,
        },
        "networkEndpoints": [_endpoint(worker.address, external) for worker in node.workers],
    }
    if node.health is not Health.UNSPECIFIED:
        shown["health"] = node.health.name
    if node.health_description:
        shown["healthDescription"] = node.health_description
    if node.maintenance:
        shown["upcomingMaintenance"] = dict(node.maintenance)
    if node.queued:
        shown["queuedResource"] = node.queued
    if node.multislice:
        shown["multisliceNode"] = True
    return shown


def queued_json(queued: QueuedResource) -> dict[str, Any]:
    """Return a QueuedResource, with enum names; only FAILED has data of its state."""
    state: dict[str, Any] = {"state": queued.state.name}
    if queued.state is not QueuedState.WAITING_FOR_RESOURCES:
        state[f"{queued.state.name.lower()}Data"] = (
            {"error": tpu_status(queued.error)} if queued.error else {}
        )
    if queued.initiator:
        state["stateInitiator"] = queued.initiator.name
    return {**queued.body, "name": queued.path, "createTime": timestamp(queued.created), "state": state}


def _endpoint(address: str, external: bool) -> dict[str, Any]:
    access = {"externalIp": address} if external else {}
    return {"ipAddress": address, "port": PORT, "accessConfig": access}


def operation_json(project: str, operation: Operation) -> dict[str, Any]:
    zone = operation.scope.removeprefix("zones/")
    metadata = {
        "@type": _TYPE + "OperationMetadata",
        "createTime": timestamp(operation.created),
        "target": operation.target,
        "verb": operation.verb,
        "cancelRequested": operation.cancel_requested,
        "apiVersion": "v2",
    }
    if operation.ended is not None:
        metadata["endTime"] = timestamp(operation.ended)
    shown: dict[str, Any] = {
        "name": f"projects/{project}/locations/{zone}/operations/{operation.name}",
        "metadata": metadata,
        "done": operation.done,
    }
    if operation.error:
        shown["error"] = tpu_status(operation.error)
    elif operation.done:
        shown["response"] = _response(operation)
    return shown


def _response(operation: Operation) -> dict[str, Any]:
    if operation.result is None:
        return {"@type": "type.googleapis.com/google.protobuf.Empty"}
    if isinstance(operation.result, QueuedResource):
        shown = {k: v for k, v in queued_json(operation.result).items() if k not in ONLY_ALPHA}
        return {"@type": _TYPE + "QueuedResource", **shown}
    return {"@type": _TYPE + "Node", **node_json(operation.result)}
