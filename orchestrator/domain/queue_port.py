"""The seam to queued resources, as a Protocol; the order is that of a node."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from orchestrator.domain.all_zones import Survey
from orchestrator.domain.observation import Operation, OperationResult, Sight
from orchestrator.domain.queued_resource import QueuedResource

Order_contra = TypeVar("Order_contra", contravariant=True)


class QueuedResources(Protocol[Order_contra]):
    """Observe, create and delete queued resources of one node each, which has the same name."""

    def observe(self, name: str, zone: str) -> Sight[QueuedResource]:
        """Look at one; errors become Unknown. A new one may be Absent for a moment."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[QueuedResource, ...]]:
        """List those whose node carries the label in *zones*, all pages; a partial answer is Unknown."""

    def everywhere(self, label: str, value: str) -> Survey[QueuedResource]:
        """List those whose node carries the label in all zones; places without an answer are named."""

    def create(self, order: Order_contra, wait: float | None) -> Operation:
        """Put the order into the queue, for at most *wait* seconds; raise ConflictError when the name is taken."""

    def delete(self, name: str, zone: str, *, force: bool) -> Operation | None:
        """Ask for deletion; None when it is gone already. Only with *force* its nodes are deleted as well."""

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once; that of a creation ends when the order is in the queue."""
