"""Apply the TPU API's refusals, and parse the body of a node."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrator.emulator.state import network, tables
from orchestrator.emulator.state.api_errors import ApiError, OperationError, tpu_case
from orchestrator.emulator.state.body_shapes import NODE
from orchestrator.emulator.state.identifiers import is_rfc1035
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tables import Accelerator
from orchestrator.emulator.state.tpu import node_disks
from orchestrator.emulator.state.values.node import BUSY, Node, NodeState

CANCELLED = OperationError(1, "The operation was cancelled.")

_WRITABLE = {*NODE, "cidrBlock"}
_UPDATABLE = ("description", "tags", "labels", "metadata", "networkConfig", "dataDisks")
_CONFIG_TYPES = {2: "V2", 4: "V3", 7: "V4", 9: "V5LITE_POD", 10: "V5P", 11: "V6E"}
_DISK_MODES = {1: "READ_WRITE", 2: "READ_ONLY"}
EVERYWHERE = "-"
"""The zone in a list call that means all zones (docs/facts.md 1.3)."""


def bad_request(kernel: Kernel, text: str) -> ApiError:
    """Return a 400 in the TPU API's form."""
    eid = kernel.hex(16)
    return ApiError(400, "INVALID_ARGUMENT", f"Cloud TPU received a bad request. {text} [EID: 0x{eid}]")


def missing(path: str) -> ApiError:
    """Return the 404 for the resource *path*; the wording is by analogy with nodes."""
    return ApiError(404, "NOT_FOUND", f"Resource '{path}' was not found")


def check_worker(node: Node, index: int) -> None:
    if not 0 <= index < len(node.workers):
        raise ApiError(400, "INVALID_ARGUMENT", f"The node has {len(node.workers)} workers.")


def check_zone(kernel: Kernel, zone: str) -> None:
    """Raise ApiError for a zone that the project may not see (403) or that has no TPUs (400)."""
    if zone in kernel.settings.hidden_zones:
        raise tpu_case("zone hidden from project").error(**kernel.values(CallTarget(zone)))
    if zone not in tables.zone_types():
        raise tpu_case("zone without TPU service").error(**kernel.values(CallTarget(zone)))


def listed_zones(kernel: Kernel, zone: str) -> tuple[list[str], list[str]]:
    """
    Return the zones that a list for *zone* shows, and those not reached. Raise ApiError.

    `-` means every zone that the project may see.
    """
    if zone != EVERYWHERE:
        check_zone(kernel, zone)
    hidden = kernel.settings.hidden_zones
    asked = (
        [one for one in sorted(tables.zone_types()) if one not in hidden] if zone == EVERYWHERE else [zone]
    )
    silent = set(asked) if kernel.partial else kernel.state.unreachable
    return [one for one in asked if one not in silent], [one for one in asked if one in silent]


def checked_body(
    kernel: Kernel, target: CallTarget, body: Mapping[str, Any]
) -> tuple[Accelerator, dict[str, Any]]:
    """Return the accelerator and the normalised body of a node to create. Raise ApiError."""
    check_zone(kernel, target.zone)
    if not is_rfc1035(target.name):
        raise bad_request(kernel, f'The node id "{target.name}" is not valid.')
    fields = {
        key: value for key, value in body.items() if key in _WRITABLE and value not in (None, "", {}, [])
    }
    _name_enums(fields)
    accelerator = _accelerator(kernel, target, fields)
    runtime = fields.get("runtimeVersion", "")
    if runtime not in tables.runtimes():
        raise bad_request(
            kernel, f'The runtime version "{runtime}" could not be found in zone "{target.zone}".'
        )
    if "networkConfig" in fields and "networkConfigs" in fields:
        raise bad_request(kernel, "Only one of network_config and network_configs may be set.")
    asked = fields.get("networkConfig") or (fields.get("networkConfigs") or [{}])[0]
    gone = network.lacking(
        kernel.settings.networks,
        tables.region_of(target.zone),
        str(asked.get("network", "")),
        str(asked.get("subnetwork", "")),
    )
    if gone:
        # The TPU API's text is not known; this one is modelled on Compute Engine's (docs/facts.md 2.7).
        raise bad_request(kernel, f"The resource 'projects/{kernel.settings.project}/{gone}' was not found")
    node_disks.check(kernel, target, fields, accelerator)
    if len(fields.get("description", "")) > 512:
        raise bad_request(kernel, "The description is longer than 512 characters.")
    if (target.zone, target.name) in kernel.state.nodes:
        raise tpu_case("already exists").error(**kernel.values(target))
    return accelerator, fields


def drafted(kernel: Kernel, target: CallTarget, body: Mapping[str, Any]) -> Node:
    """Return the node that *body* (JSON of Node) asks for, with its own ids. Raise ApiError."""
    accelerator, fields = checked_body(kernel, target, body)
    account = fields.get("serviceAccount", {})
    return Node(
        kernel.settings.project,
        target.zone,
        target.name,
        kernel.numeric_id(),
        kernel.hex(16),
        accelerator,
        fields,
        kernel.state.time,
        account.get("email") or kernel.settings.default_service_account,
        tuple(account.get("scope") or ("https://www.googleapis.com/auth/cloud-platform",)),
    )


def _name_enums(fields: dict[str, Any]) -> None:
    config = fields.get("acceleratorConfig")
    if config:
        fields["acceleratorConfig"] = {
            **config,
            "type": _CONFIG_TYPES.get(config.get("type"), config.get("type")),
        }
    for disk in fields.get("dataDisks", ()):
        disk["mode"] = _DISK_MODES.get(disk.get("mode"), disk.get("mode"))


def _accelerator(kernel: Kernel, target: CallTarget, fields: dict[str, Any]) -> Accelerator:
    config = fields.get("acceleratorConfig")
    if config and fields.get("acceleratorType"):
        raise bad_request(kernel, "Only one of accelerator_type and accelerator_config may be set.")
    name = fields.get("acceleratorType", "")
    if config:
        wanted = (config.get("type"), config.get("topology"))
        known = tables.accelerators().values()
        name = next(
            (a.type for a in known if (a.config_type, a.topology) == wanted), "x".join(map(str, wanted))
        )
        fields["acceleratorType"] = name
    if name not in tables.zone_types()[target.zone]:
        raise tpu_case("type not in zone").error(**kernel.values(target, type=name))
    return tables.accelerators()[name]


def quota_ids(node: Node) -> tuple[str, str]:
    """
    Return the ids of the node's quota by zone and by region.

    A v5e with one host counts as serving, a larger one as training (docs/facts.md 1.6). Flex-start counts as
    preemptible. Nodes from a reservation have a quota of their own, whose id is by analogy.
    """
    quota = tables.quota_of(node.accelerator)
    kind = "Reserved" if node.reserved else "Preemptible" if node.spot or node.flex else ""
    return quota.id(kind, "Zone"), quota.id(kind, "Region")


def check_quota(kernel: Kernel, *wanted: Node) -> None:
    """
    Raise ApiError 429 for nodes beyond the quota; every existing node counts, even a preempted one.

    A queued resource counts for all of its nodes from its creation to its deletion, in every state.
    """
    for node in wanted:
        zonal, regional = quota_ids(node)
        region = tables.region_of(node.zone)
        _check_limit(kernel, wanted, node, zonal, node.zone, "quota exceeded")
        _check_limit(kernel, wanted, node, regional, region, "quota exceeded, region form")


def _check_limit(
    kernel: Kernel, wanted: Sequence[Node], node: Node, quota: str, location: str, case: str
) -> None:
    limit = quota_limit(kernel, quota, location)
    if limit is None:
        return
    plain = [n for n in kernel.state.nodes.values() if not n.queued]
    queued = [n for resource in kernel.state.queued.values() for n in resource.wanted]
    same = [n for n in (*plain, *queued, *wanted) if quota in quota_ids(n)]
    used = sum(n.accelerator.counted for n in same if location in (n.zone, tables.region_of(n.zone)))
    if used > limit:
        raise tpu_case(case).error(**kernel.values(CallTarget(node.zone, node.name), quota=quota, n=limit))


def quota_limit(kernel: Kernel, quota: str, location: str) -> int | None:
    """Return the project's limit from the settings, else that of a new project; None for no limit."""
    limit = kernel.settings.quotas.get((quota, location))
    if limit is None and kernel.settings.fresh_project:
        return tables.fresh_quotas().get(quota)
    return limit


def check_verb(kernel: Kernel, node: Node, verb: str, allowed: Collection[NodeState]) -> None:
    """Raise ApiError if the node's state forbids a verb: 409 while it is busy, else 400."""
    if node.state in allowed:
        return
    if node.state in BUSY:
        raise tpu_case("concurrent operation").error(**kernel.values(CallTarget(node.zone, node.name)))
    raise bad_request(kernel, f"{verb} is not supported while in state {node.state.name}")


def check_stoppable(kernel: Kernel, node: Node) -> None:
    """Raise ApiError 400 for a node that could not be started again after a stop."""
    if node.spot:
        raise bad_request(kernel, "stop is not supported for preemptible or spot nodes")
    if node.accelerator.hosts > 1:
        raise bad_request(kernel, "stop is not supported for slices of several hosts")


def changes(body: Mapping[str, Any], mask: str) -> dict[str, Any]:
    """
    Return the new values of the fields in *mask*; a field missing in *body* is cleared.

    Raise ApiError 400 for a mask that is empty or names a field that cannot change.
    """
    empty = {"description": "", "tags": [], "dataDisks": []}
    found: dict[str, Any] = {}
    for path in filter(None, mask.split(",")):
        head, _, rest = path.strip().partition(".")
        field = _camel(head)
        if field not in _UPDATABLE or (field == "networkConfig" and _camel(rest) != "enableExternalIps"):
            raise ApiError(400, "INVALID_ARGUMENT", f"Field mask path '{path}' cannot be updated.")
        value = body.get(field, empty.get(field, {}))
        found[field] = {"enableExternalIps": bool(value.get("enableExternalIps"))} if rest else value
    if not found:
        raise ApiError(400, "INVALID_ARGUMENT", "The update mask is empty.")
    _name_enums(found)
    return found


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
