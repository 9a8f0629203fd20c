"""
Apply the TPU API's refusals of queued resources, and parse the body of one.

Not known about the real API, chosen here: the texts of its refusals, that a request without an id is refused,
and that the name of an existing plain node is a 409 on the call.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from orchestrator.emulator.state import tables
from orchestrator.emulator.state.api_errors import ApiError, OperationError, tpu_case
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tpu import node_rules
from orchestrator.emulator.state.values.faults import FATES
from orchestrator.emulator.state.values.node import Node
from orchestrator.emulator.state.values.queued import FLEX_START, MAX_RUN, Initiator, QueuedResource

_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_DURATION = re.compile(r"(\d+(?:\.\d{1,9})?)s")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_SHOWN = ("spot", "guaranteed", "queueingPolicy", "reservationName", "provisioningModel", "runDuration")
_MODELS = ("PROVISIONING_MODEL_UNSPECIFIED", "STANDARD", "SPOT", "RESERVATION_BOUND", FLEX_START)
"""QueuedResource.provisioningModel of v2alpha1 (discovery document of 2026-10-01)."""

Window = tuple[float, float | None]


def notify(kernel: Kernel, node: Node, initiator: Initiator) -> None:
    """Notify the queued resource of *node*, if it has one, that the node is ending or has ended."""
    if node.queued:
        # As an event at the present time, so that the node's own call ends before its queued resource reacts.
        kernel.schedule(0.0, "queued.node-ended", node.zone, node.queued.rpartition("/")[2], initiator)


def checked(kernel: Kernel, target: CallTarget, body: Mapping[str, Any]) -> QueuedResource:
    """Return the queued resource that *body* (JSON of QueuedResource) asks for. Raise ApiError, ValueError."""
    node_rules.check_zone(kernel, target.zone)
    _check_id(kernel, target)
    if "spot" in body and "guaranteed" in body:
        raise node_rules.bad_request(kernel, "Only one of spot and guaranteed may be set.")
    _check_run(kernel, body)
    specs = list(_specs(kernel, target, body))
    wanted = tuple(node for node, _ in specs)
    node_rules.check_quota(kernel, *wanted)
    now, latency = kernel.state.time, kernel.settings.latency
    not_before, not_after = window(kernel, body.get("queueingPolicy", {}), now)
    shown = {key: body[key] for key in _SHOWN if key in body}
    fate = kernel.armed if kernel.armed and kernel.armed.kind in FATES else None
    return QueuedResource(
        kernel.settings.project,
        target.zone,
        target.name,
        kernel.numeric_id(),
        {"tpu": {"nodeSpec": [spec for _, spec in specs]}, **shown},
        wanted,
        now,
        now + latency.queued_hidden,
        not_before,
        not_after,
        fate,
    )


def no_flex_start(kernel: Kernel, queued: QueuedResource) -> OperationError | None:
    """
    Return the error of a flex-start request in a zone that does not offer it, else None.

    It is known for few zones (docs/facts.md 1.5); the local cloud refuses it in all others.
    """
    known = tables.flex_start_zones()
    for node in queued.wanted if queued.run_seconds else ():
        if (node.zone, node.accelerator.generation) not in known:
            target = CallTarget(node.zone, node.name)
            return tpu_case("flex start unsupported").operation_error(
                **kernel.values(target, type=node.accelerator.type)
            )
    return None


def _check_run(kernel: Kernel, body: Mapping[str, Any]) -> None:
    """Raise ApiError for an unknown provisioning model or too long a run; Google's texts are not known."""
    model, run = body.get("provisioningModel", _MODELS[0]), body.get("runDuration", {})
    if model not in _MODELS:
        raise ValueError(f"'{model}' is not a provisioning model")
    longest = _seconds(run["maxRunDuration"]) if "maxRunDuration" in run else 1.0
    if not 0 < longest <= MAX_RUN:
        raise node_rules.bad_request(kernel, "The max run duration must be between 1 second and 7 days.")
    if model == FLEX_START and "spot" in body:
        raise node_rules.bad_request(kernel, "Only one of spot and flex-start may be asked for.")


def window(kernel: Kernel, policy: Mapping[str, Any], now: float) -> Window:
    """Return the times between which nodes may be created. Raise ApiError 400, ValueError."""
    if len(policy) > 1:
        raise node_rules.bad_request(kernel, "Only one start timing constraint may be set.")
    if "validInterval" in policy:
        interval = policy["validInterval"]
        end = interval.get("endTime")
        return _time(interval.get("startTime", ""), now), _time(end, now) if end else None
    for key, value in policy.items():
        at = now + _seconds(value) if key.endswith("Duration") else _time(value, now)
        return (now, at) if key.startswith("validUntil") else (at, None)
    return now, None


def refused(kernel: Kernel, verb: str, queued: QueuedResource) -> ApiError:
    return node_rules.bad_request(kernel, f"{verb} is not supported while in state {queued.state.name}")


def _check_id(kernel: Kernel, target: CallTarget) -> None:
    if not _ID.fullmatch(target.name):
        raise node_rules.bad_request(kernel, f'The queued resource id "{target.name}" is not valid.')
    if (target.zone, target.name) in kernel.state.queued:
        path = f"{_parent(kernel.settings.project, target)}/queuedResources/{target.name}"
        details = ({"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": path},)
        raise ApiError(409, "ALREADY_EXISTS", f"Resource '{path}' already exists", details)


def _specs(
    kernel: Kernel, target: CallTarget, body: Mapping[str, Any]
) -> Iterator[tuple[Node, dict[str, Any]]]:
    """Yield each node to create and its spec as the API shows it; a spec for several becomes several specs."""
    given = body.get("tpu", {}).get("nodeSpec", [])
    if not given:
        raise node_rules.bad_request(kernel, "A queued resource needs a node_spec.")
    number = _parent(kernel.settings.project_number, target)
    queued = f"{number}/queuedResources/{target.name}"
    for spec in given:
        _check_parent(kernel, target, spec)
        names = _names(kernel, target, spec)
        for name in names:
            drawn = node_rules.drafted(kernel, CallTarget(target.zone, name), spec.get("node", {}))
            shown = {"parent": number, "nodeId": name, "node": {**drawn.body, "queuedResource": queued}}
            tier = [word for word, key in (("spot", "spot"), ("reserved", "reservationName")) if key in body]
            scheduling = {**drawn.body.get("schedulingConfig", {}), **dict.fromkeys(tier, True)}
            own = {**drawn.body, **({"schedulingConfig": scheduling} if scheduling else {})}
            flex = body.get("provisioningModel") == FLEX_START
            yield replace(drawn, body=own, queued=queued, multislice=len(names) > 1, flex=flex), shown


def _names(kernel: Kernel, target: CallTarget, spec: Mapping[str, Any]) -> list[str]:
    params = spec.get("multisliceParams")
    if bool(spec.get("nodeId")) is (params is not None):
        raise node_rules.bad_request(kernel, "Exactly one of node_id and multislice_params must be set.")
    if params is None:
        return [spec["nodeId"]]
    if params.get("nodeCount", 0) < 2:
        raise node_rules.bad_request(kernel, "multislice_params.node_count must be greater than 1.")
    return [f"{params.get('nodeIdPrefix') or target.name}-{i}" for i in range(params["nodeCount"])]


def _check_parent(kernel: Kernel, target: CallTarget, spec: Mapping[str, Any]) -> None:
    settings = kernel.settings
    known = [_parent(name, target) for name in (settings.project, settings.project_number)]
    if spec.get("parent") not in known:
        raise node_rules.bad_request(kernel, f"The parent of a node must be {known[0]}.")


def _parent(project: object, target: CallTarget) -> str:
    return f"projects/{project}/locations/{target.zone}"


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is not a duration such as 3600s")
    return float(found[1])


def _time(text: str, missing: float) -> float:
    if not text:
        return missing
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is not a time such as 2030-01-01T00:00:00Z")
    zone = found[3].replace("Z", "+00:00")
    return datetime.fromisoformat(found[1] + zone).timestamp() + float(found[2] or 0)
