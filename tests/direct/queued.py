"""Queued resources straight on the model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from orchestrator.domain.all_zones import ALL_ZONES, Everywhere, Survey
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Operation, OperationResult, Sight
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import NodeOrder
from orchestrator.domain.queued_resource import QueuedResource, QueuedState
from orchestrator.emulator.state import operation as model_operations
from orchestrator.emulator.state import queued as model
from orchestrator.emulator.state.kernel import Place
from orchestrator.errors import NotFoundError, TransientError
from orchestrator.google import refusal
from orchestrator.google.bodies import queued_body, queued_json
from orchestrator.google.error_mapping import judge
from orchestrator.google.hints import comparing_with_quota
from orchestrator.google.observations import joined, listed, observed, surveyed
from tests.direct.door import Door
from tests.direct.nodes import DirectNodes
from tests.direct.times import micros

_PAGE = 500  # the largest page of the model's lists


class DirectQueued:
    """Observe, create and delete queued resources."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._local = door.local
        self._nodes = DirectNodes(door)

    def observe(self, name: str, zone: str) -> Sight[QueuedResource]:
        """Look at one; errors become Unknown. A new one may be Absent for a moment."""
        what, place = f"look at queued resource '{name}' in {zone}", Place(zone, name)
        method = "tpu.queuedResources.get"
        act = partial(self._local.queued.get, zone, name)
        return observed(lambda: self._door.tpu(what, method, place, lambda: queued_of(act())))

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[QueuedResource, ...]]:
        """List those whose node carries the label in *zones*, all pages; a partial answer is Unknown."""
        asked = dict.fromkeys(zones)
        return joined([listed(partial(self._listed, zone, label, value)) for zone in asked])

    def everywhere(self, label: str, value: str) -> Survey[QueuedResource]:
        """List those whose node carries the label in all zones; places without an answer are named."""
        what, place = "list queued resources in all zones", Place(ALL_ZONES)

        def look() -> Everywhere[QueuedResource]:
            act = partial(self._local.queued.listed, ALL_ZONES)
            known, silent = self._door.tpu(what, "tpu.queuedResources.list", place, act)
            ours = [one for one in map(queued_of, known) if one.labels.get(label) == value]
            return Everywhere(tuple(ours), tuple(silent))

        return surveyed(look)

    def create(self, order: NodeOrder, wait: float | None) -> Operation:
        """Put the order into the queue, for at most *wait* seconds; raise ConflictError when the name is taken."""
        zone, name = order.zone, order.name
        body = queued_json(queued_body(order, f"projects/{self._door.project}/locations/{zone}", wait))
        act = partial(self._local.queued.create, zone, name, body)
        what = f"create queued resource '{name}' in {zone}"
        with comparing_with_quota(order.type, zone):
            started = self._door.tpu(what, "tpu.queuedResources.create", Place(zone, name), act)
        return self._operation(started, Verb.CREATE, name, zone, incarnation_of(name, dict(order.labels)))

    def delete(self, name: str, zone: str, *, force: bool) -> Operation | None:
        """Ask for deletion; None when it is gone already. Only with *force* its nodes are deleted as well."""
        act = partial(self._local.queued.delete, zone, name, force=force)
        what = f"delete queued resource '{name}' in {zone}"
        try:
            started = self._door.tpu(what, "tpu.queuedResources.delete", Place(zone, name), act)
        except NotFoundError:
            return None
        return self._operation(started, Verb.DELETE, name, zone, incarnation_of(name, {}))

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once; that of a creation ends when the order is in the queue."""
        return self._nodes.poll(operation)

    def _listed(self, zone: str, label: str, value: str) -> list[QueuedResource]:
        what, found, start = f"list queued resources in {zone}", list[QueuedResource](), 0
        while True:
            act = partial(self._page, zone, start)
            page, more = self._door.tpu(what, "tpu.queuedResources.list", Place(zone), act)
            found += [resource for resource in page if resource.labels.get(label) == value]
            if not more:
                return found
            start += _PAGE

    def _page(self, zone: str, start: int) -> tuple[list[QueuedResource], bool]:
        known, silent = self._local.queued.listed(zone)
        if silent:
            place = f"projects/{self._door.project}/locations/{zone}"
            raise TransientError(f"list queued resources in {zone}: no answer from {place}")
        return [queued_of(found) for found in known[start : start + _PAGE]], len(known) > start + _PAGE

    def _operation(
        self, started: model_operations.Operation, verb: Verb, name: str, zone: str, incarnation: int | None
    ) -> Operation:
        place = f"projects/{self._door.project}/locations/{zone}/operations/{started.name}"
        at = micros(started.created)
        return Operation(place, Kind.QUEUED, verb, name, zone, incarnation, at)


def queued_of(found: model.QueuedResource) -> QueuedResource:
    """Return our value for a queued resource of the model."""
    labels = dict(found.wanted[0].body.get("labels", {}))
    value = QueuedResource(
        name=found.name,
        zone=found.zone,
        state=QueuedState(found.state.value),
        incarnation=incarnation_of(found.name, labels),
        nodes=tuple(node.name for node in found.wanted),
        labels=labels,
        spot="spot" in found.body,
        created_at=micros(found.created),
        until=_until(found),
        by_user=found.initiator is model.Initiator.USER,
    )
    if found.state is not model.QueuedState.FAILED or found.error is None:
        return value
    told = refusal.of_status(int(found.error.code), found.error.message, found.error.details)
    judged = judge(told, f"queued resource '{found.name}' in {found.zone}")
    return replace(value, retry=judged.retry, code=judged.code, message=judged.message, hint=judged.hint)


def _until(found: model.QueuedResource) -> float:
    """Return when a queued resource that still waits gives up, 0 when it never does."""
    if "validUntilTime" in found.body.get("queueingPolicy", {}):
        return micros(found.not_after or 0.0)
    return micros(found.created) + (found.not_after - found.created) if found.not_after else 0.0
