"""
Manage TPUs through the queue: the verbs of nodes, over queued resources and nodes together.

A queued resource and its node have one name and count as one TPU here, so no other module of the engine knows
of the queue. The queue is read if the deployment uses it or has ever used it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.domain.all_zones import AllZones, ObservedAllZones
from orchestrator.domain.machines.queued_resource import QueuedResource
from orchestrator.domain.observation import (
    Absent,
    ForeignNode,
    Node,
    Observed,
    Operation,
    OperationResult,
    Present,
    Unknown,
)
from orchestrator.domain.plan import Kind
from orchestrator.domain.ports import Cloud, NewNode, Nodes
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.errors import CapacityError, UsageError
from orchestrator.planning.tpu.queued_tpu import merged

LAST_RESORT_TIMEOUT = 1800.0
"""Seconds to wait for flex-start before on demand is requested (`watch.last_resort`)."""
NO_UNRESERVED = "TPU-302"
"""Code of "Reservation not found" for a request that names no reservation (docs/facts.md 1.6)."""


def nodes_of(cloud: Cloud, spec: Spec, record: Record) -> Nodes:
    """Return the adapter for the TPUs of a deployment, with the queue or without."""
    if spec.tpu.request == "node" and not record.node.queued:
        return cloud.nodes
    return QueuedTpus(cloud, spec)


class QueuedTpus:
    """Observe, create and delete TPU nodes that queued resources make."""

    def __init__(self, cloud: Cloud, spec: Spec) -> None:
        self._nodes, self._queued = cloud.nodes, cloud.queued
        self._spec = spec

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[Node, ...]]:
        """
        List nodes and queued resources with the label; both lists must be complete, else Unknown.

        The queue is listed first, so that a node which it creates between the two lists is not missed.
        """
        # The order matters: the other way round, a node created between the two lists would be missed.
        queued = self._queued.labelled(label, value, zones)
        nodes = self._nodes.labelled(label, value, zones)
        for observed in (queued, nodes):
            if isinstance(observed, Unknown):
                return observed
        known = [self._judged(request) for request in queued.value] if isinstance(queued, Present) else ()
        return Present(merged(nodes.value if isinstance(nodes, Present) else (), known))

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[Node]:
        """List nodes and queued resources with the label in all zones, the queue first."""
        queued = self._queued.list_all_zones(label, value)
        nodes = self._nodes.list_all_zones(label, value)
        if isinstance(queued, Unknown):
            return queued
        if isinstance(nodes, Unknown):
            return nodes
        silent = dict.fromkeys((*queued.value.unreachable, *nodes.value.unreachable))
        return Present(AllZones(merged(nodes.value.found, queued.value.found), tuple(silent)))

    def observe(self, name: str, zone: str) -> Observed[Node]:
        """Observe one node or queued resource of any owner; errors become Unknown."""
        queued = self._queued.observe(name, zone)
        node = self._nodes.observe(name, zone)
        if isinstance(queued, Unknown):
            return queued
        if isinstance(queued, Absent) or isinstance(node, Unknown):
            return node
        found = merged((node.value,) if isinstance(node, Present) else (), (self._judged(queued.value),))
        return Present(found[0])

    def inspect(self, name: str, zone: str) -> Observed[ForeignNode]:
        """Observe one node of any owner with its unchangeable settings; errors become Unknown."""
        return self._nodes.inspect(name, zone)

    def add_labels(self, name: str, zone: str, labels: Mapping[str, str], ssh_key: str) -> Operation:
        """Add *labels* and an SSH key to a node, beside those that it has."""
        return self._nodes.add_labels(name, zone, labels, ssh_key)

    def remove_labels(self, name: str, zone: str, labels: Sequence[str], ssh_key: str) -> Operation | None:
        """Remove *labels* and an SSH key from a node; None if the node no longer exists."""
        return self._nodes.remove_labels(name, zone, labels, ssh_key)

    def create(self, new: NewNode) -> Operation:
        """Request the node as the deployment file says: through the queue, or at once."""
        tpu = self._spec.tpu
        in_haste = tpu.spot and not new.spot  # a queue may never end
        if in_haste and new.run_seconds:
            return _as_node(self._queued.create(new, LAST_RESORT_TIMEOUT))
        if tpu.request == "node" or in_haste:
            return self._nodes.create(new)
        try:
            return _as_node(self._queued.create(new, tpu.wait))
        except CapacityError as error:
            if self._lacks_reservation(error.code):
                raise self._no_reservation(new.zone) from error
            raise

    def delete(self, name: str, zone: str) -> Operation | None:
        """Delete the queued resource and, by force, its node; else a node without one. None if there is neither."""
        # Through its queued resource if there is one, or that would create a new node for the deleted one.
        operation = self._queued.delete(name, zone, force=True)
        return self._nodes.delete(name, zone) if operation is None else _as_node(operation)

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once; nodes and queued resources share their operations."""
        result = self._nodes.poll(operation)
        if not self._lacks_reservation(result.code):
            return result
        error = self._no_reservation(operation.zone)
        return replace(result, retry=error.retry, code=error.code, message=error.message, hint=error.hint)

    def host_keys(self, name: str, zone: str, worker: int) -> tuple[str, ...]:
        """Return the public host keys of one worker."""
        return self._nodes.host_keys(name, zone, worker)

    def _judged(self, queued: QueuedResource) -> QueuedResource:
        """Return a queued resource whose failure is judged by what this deployment requests."""
        if not self._lacks_reservation(queued.code):
            return queued
        error = self._no_reservation(queued.zone)
        return replace(queued, retry=error.retry, code=error.code, message=error.message, hint=error.hint)

    def _lacks_reservation(self, code: str) -> bool:
        """Return whether *code* means that our reservation is missing; without a reservation it is a stockout."""
        return self._spec.tpu.reservation is not None and code == NO_UNRESERVED

    def _no_reservation(self, zone: str) -> UsageError:
        return UsageError(
            f"there is no reservation '{self._spec.tpu.reservation}' in {zone} for this project",
            code="TPU-123",
            hint=f"see: gcloud alpha compute tpus reservations list --zone {zone}; then correct "
            "tpu.reservation or tpu.zones, or leave tpu.reservation out",
            changed="no TPU was created",
        )


def _as_node(operation: Operation) -> Operation:
    """Return an operation of the queue as one of the node; the record and the loop know nodes only."""
    return replace(operation, kind=Kind.NODE)
