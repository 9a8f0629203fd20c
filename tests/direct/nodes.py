"""TPU nodes straight on the model."""

from collections.abc import Sequence
from functools import partial

from orchestrator.domain.all_zones import ALL_ZONES, Everywhere, Survey
from orchestrator.domain.maintenance import maintenance_of
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Node, NodeState, Operation, OperationResult, Sight, Worker
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import NodeOrder
from orchestrator.emulator.state import node as model
from orchestrator.emulator.state import node_rules
from orchestrator.emulator.state import operation as model_operations
from orchestrator.emulator.state.kernel import Place
from orchestrator.emulator.state.operation import Api
from orchestrator.errors import NotFoundError, TransientError
from orchestrator.google import refusal
from orchestrator.google.bodies import as_json, node_body
from orchestrator.google.error_mapping import judge
from orchestrator.google.hints import comparing_with_quota
from orchestrator.google.observations import joined, listed, observed, surveyed
from orchestrator.google.operations import described, failed, polled
from tests.direct.door import Door
from tests.direct.times import micros

_PAGE = 500  # the largest page of the model's lists


class DirectNodes:
    """Observe, create and delete TPU nodes."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._local = door.local

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[Node, ...]]:
        """List the nodes that carry the label in *zones*, all pages; a partial answer is Unknown."""
        asked = dict.fromkeys(zones)
        return joined([listed(partial(self._listed, zone, label, value)) for zone in asked])

    def everywhere(self, label: str, value: str) -> Survey[Node]:
        """List the nodes that carry the label in all zones; places without an answer are named."""
        what, place = "list TPU nodes in all zones", Place(ALL_ZONES)
        act = partial(self._local.tpu.listed, ALL_ZONES)

        def look() -> Everywhere[Node]:
            nodes, silent = self._door.tpu(what, "tpu.nodes.list", place, act)
            ours = (node_of(n) for n in nodes if n.body.get("labels", {}).get(label) == value)
            return Everywhere(tuple(ours), tuple(silent))

        return surveyed(look)

    def observe(self, name: str, zone: str) -> Sight[Node]:
        """Look at one node of any owner; errors become Unknown."""
        what = f"look at TPU node '{name}' in {zone}"
        return observed(
            lambda: self._door.tpu(
                what, "tpu.nodes.get", Place(zone, name), lambda: node_of(self._local.tpu.get(zone, name))
            )
        )

    def create(self, order: NodeOrder) -> Operation:
        """Ask for the node; raise ConflictError when the name is taken."""
        incarnation = incarnation_of(order.name, dict(order.labels))
        parent = f"projects/{self._door.project}/locations/{order.zone}"
        body = as_json(node_body(order, parent), presence=False)
        act = partial(self._local.tpu.create, order.zone, order.name, body)
        what = f"create TPU node '{order.name}' in {order.zone}"
        with comparing_with_quota(order.type, order.zone):
            started = self._door.tpu(what, "tpu.nodes.create", Place(order.zone, order.name), act)
        return self._operation(started, Verb.CREATE, order.name, order.zone, incarnation)

    def delete(self, name: str, zone: str) -> Operation | None:
        """Ask for deletion; None when it is gone already."""
        try:
            started = self._door.tpu(
                f"delete TPU node '{name}' in {zone}",
                "tpu.nodes.delete",
                Place(zone, name),
                lambda: self._local.tpu.delete(zone, name),
            )
        except NotFoundError:
            return None
        return self._operation(started, Verb.DELETE, name, zone, incarnation_of(name, {}))

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once."""
        zone, _, name = operation.id.split("/locations/")[-1].partition("/operations/")

        def look() -> OperationResult:
            found = self._door.tpu(
                f"look at operation '{described(operation)}'",
                "tpu.operations.get",
                Place(zone, name),
                lambda: self._found(zone, name),
            )
            if found.error is None:
                return OperationResult(operation, done=found.done)
            told = refusal.of_status(int(found.error.code), found.error.message, found.error.details)
            return failed(operation, judge(told, described(operation)))

        return polled(operation, look)

    def host_keys(self, name: str, zone: str, worker: int) -> tuple[str, ...]:
        """Return one worker's public host keys from its guest attributes; NotFoundError while there are none."""
        what = f"read the host keys of worker {worker} of '{name}' in {zone}"
        keys = self._door.tpu(
            what, "tpu.nodes.getGuestAttributes", Place(zone, name), lambda: self._keys(zone, name, worker)
        )
        if not keys:
            raise NotFoundError(f"{what}: none published yet", hint="The machine is still starting.")
        return keys

    def _listed(self, zone: str, label: str, value: str) -> list[Node]:
        what, found, start = f"list TPU nodes in {zone}", list[Node](), 0
        while True:
            page, more = self._door.tpu(
                what, "tpu.nodes.list", Place(zone), partial(self._page, zone, label, value, start)
            )
            found += page
            if not more:
                return found
            start += _PAGE

    def _page(self, zone: str, label: str, value: str, start: int) -> tuple[list[Node], bool]:
        nodes, silent = self._local.tpu.listed(zone)
        if silent:
            place = f"projects/{self._door.project}/locations/{zone}"
            raise TransientError(f"list TPU nodes in {zone}: no answer from {place}")
        page = nodes[start : start + _PAGE]
        ours = [node_of(n) for n in page if n.body.get("labels", {}).get(label) == value]
        return ours, len(nodes) > start + _PAGE

    def _found(self, zone: str, name: str) -> model_operations.Operation:
        found = self._local.kernel.find_operation(Api.TPU, f"zones/{zone}", name)
        if found is None:
            raise node_rules.missing(f"projects/{self._door.project}/locations/{zone}/operations/{name}")
        return found

    def _keys(self, zone: str, name: str, worker: int) -> tuple[str, ...]:
        node = self._local.tpu.get(zone, name)
        node_rules.check_worker(node, worker)
        known = self._local.kernel.state.guest.get(node.workers[worker].id, {})
        return public_keys(known)

    def _operation(
        self,
        started: model_operations.Operation,
        verb: Verb,
        name: str,
        zone: str,
        incarnation: int | None,
    ) -> Operation:
        place = f"projects/{self._door.project}/locations/{zone}/operations/{started.name}"
        at = micros(started.created)
        return Operation(place, Kind.NODE, verb, name, zone, incarnation, at)


def public_keys(attributes: dict[tuple[str, str], str]) -> tuple[str, ...]:
    """Return the host keys among guest attributes as lines `TYPE KEY`, sorted."""
    found = (f"{key} {value}" for (space, key), value in attributes.items() if space == "hostkeys" and value)
    return tuple(sorted(found))


def node_of(node: model.Node) -> Node:
    """Return our value for a node of the model."""
    labels = dict(node.body.get("labels", {}))
    health = "HEALTH_UNSPECIFIED" if node.health is model.Health.UNSPECIFIED else node.health.name
    external = bool(node.body.get("networkConfig", {}).get("enableExternalIps"))
    first = node.workers[:: max(1, len(node.body.get("networkConfigs", ())))]
    return Node(
        name=node.name,
        zone=node.zone,
        state=NodeState(node.state.value),
        incarnation=incarnation_of(node.name, labels),
        healthy=node.health in {model.Health.HEALTHY, model.Health.UNSPECIFIED},
        health=": ".join(part for part in (health, node.health_description) if part),
        timed_out=node.health is model.Health.TIMEOUT,
        workers=tuple(Worker(i, w.address, w.address if external else "") for i, w in enumerate(first)),
        labels=labels,
        spot=node.spot,
        created_at=micros(node.created),
        maintenance=maintenance_of(node.maintenance),
    )
