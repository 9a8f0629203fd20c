"""
Move queued resources from state to state as time passes, and their nodes with them.

Known: waiting, provisioning, active; a lost node leads over SUSPENDING to SUSPENDED, which never ends by
itself; provisioning may fall back, fail or last forever (docs/facts.md 1.5). Not known, chosen here: the end
of one node ends all nodes of its queued resource; one that is being provisioned when its time is over
continues; a lost node disappears after the time of a deletion.
"""

import copy
from collections.abc import Sequence

from orchestrator.emulator.state.api_errors import OperationError, tpu_case
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tpu import node_rules, queued_rules, reservations
from orchestrator.emulator.state.tpu.nodes import TpuNodes
from orchestrator.emulator.state.values.faults import FaultKind
from orchestrator.emulator.state.values.node import DEAD, Node, NodeState
from orchestrator.emulator.state.values.operation import Operation
from orchestrator.emulator.state.values.queued import WAITING, Initiator, QueuedResource, QueuedState

S = QueuedState
SHORTEST_WAIT = 1.0  # seconds between two tries, so that a cloud without latencies does not loop forever
EXPIRED = OperationError(4, "The queued resource expired before its resources became available.")
INTERNAL = OperationError(13, "an internal error has occurred")


class QueuedTransitions:
    def __init__(self, kernel: Kernel, nodes: TpuNodes) -> None:
        self._kernel, self._nodes = kernel, nodes
        kernel.handlers |= {
            "queued.accepted": self._accepted,
            "queued.poll": self._poll,
            "queued.start": self._start,
            "queued.ready": self._ready,
            "queued.node-ended": self._node_ended,
            "queued.nodes-deleted": self._nodes_deleted,
            "queued.expired": self._expired,
            "queued.deleted": self._deleted,
            "queued.restarted": self._restarted,
            "queued.run-over": self._run_over,
        }

    def members(self, queued: QueuedResource) -> list[Node]:
        nodes = self._kernel.state.nodes
        there = [nodes.get((wanted.zone, wanted.name)) for wanted in queued.wanted]
        return [node for node in there if node and node.queued == queued.wanted[0].queued]

    def accept(self, queued: QueuedResource, operation: Operation) -> None:
        """Plan the queueing of a new queued resource."""
        kernel = self._kernel
        kernel.proceed(operation, kernel.settings.latency.queued_accept, "queued.accepted", *queued.tag)
        if queued.not_after is not None:
            delay = max(0.0, queued.not_after - kernel.state.time)
            kernel.schedule(delay, "queued.expired", queued.zone, queued.name, queued.numeric_id)

    def leave(self, queued: QueuedResource) -> None:
        """Start the end of all nodes, which exist until they are dropped."""
        for node in self.members(queued):
            if node.state not in DEAD | {NodeState.DELETING}:
                self._nodes.leave(node)
                node.enter(NodeState.DELETING)

    def restart(self, queued: QueuedResource) -> None:
        """Stop the machines of all READY nodes; they boot again when the reset ends."""
        for node in self.members(queued):
            if node.state is NodeState.READY:
                node.enter(NodeState.RESTARTING)
                for worker in self._machines(node):
                    self._kernel.halt(worker)

    def wait(self, queued: QueuedResource, state: QueuedState = S.WAITING_FOR_RESOURCES) -> None:
        """Queue a queued resource, for the first time or again, without nodes."""
        self._drop(self.members(queued))
        if queued.not_after is not None and queued.not_after <= self._kernel.state.time:
            self.fail(queued, EXPIRED)
            return
        queued.enter(state)
        self._kernel.schedule(self._kernel.settings.latency.queued_poll, "queued.poll", *queued.tag)

    def choose(self, queued: QueuedResource) -> None:
        """Choose a waiting queued resource; its nodes appear a moment later."""
        queued.enter(S.PROVISIONING)
        self._kernel.schedule(self._kernel.settings.latency.queued_start, "queued.start", *queued.tag)

    def fail(self, queued: QueuedResource, error: OperationError) -> None:
        """Fail a queued resource for good; it exists until it is deleted."""
        self._drop(self.members(queued))
        queued.error = error
        queued.enter(S.FAILED)

    def suspend(self, queued: QueuedResource, initiator: Initiator) -> None:
        """Remove the nodes; the queued resource stays, SUSPENDED."""
        queued.enter(S.SUSPENDING, initiator)
        self.leave(queued)
        self._kernel.schedule(self._kernel.settings.latency.node_delete, "queued.nodes-deleted", *queued.tag)

    def _current(self, *tag: object) -> QueuedResource | None:
        zone, name, *_ = tag
        found = self._kernel.state.queued.get((str(zone), str(name)))
        # The tag changes with each state, so events planned for an earlier one find nothing.
        return found if found and found.tag == tag else None

    def _accepted(self, operation_name: str, *tag: object) -> None:
        kernel, found = self._kernel, self._current(*tag)
        operation = kernel.state.operations[operation_name]
        if found is None or operation.done:
            return
        if operation.planned:
            self.fail(found, operation.planned)
        elif refused := queued_rules.no_flex_start(kernel, found) or self._unreserved(found):
            operation.planned = refused if found.run_seconds else None
            self.fail(found, refused)
        else:
            self.wait(found)
        kernel.finish(operation, operation.planned, copy.deepcopy(found))

    def _poll(self, *tag: object) -> None:
        found, kernel = self._current(*tag), self._kernel
        if found is None:
            return
        early = found.not_before - kernel.state.time
        if early <= 0 and self._stocked(found):
            self.choose(found)
            return
        again = max(SHORTEST_WAIT, kernel.settings.latency.queued_poll)
        kernel.schedule(early if early > 0 else again, "queued.poll", *found.tag)

    def _start(self, *tag: object) -> None:
        found, kernel = self._current(*tag), self._kernel
        if found is None:
            return
        for wanted in found.wanted:
            # Free when it was requested, but a plain node may have taken the name since.
            if (wanted.zone, wanted.name) in kernel.state.nodes:
                target = CallTarget(wanted.zone, wanted.name)
                taken = tpu_case("already exists").error(**kernel.values(target))
                self.fail(found, OperationError(6, taken.message))
                return
        for wanted in found.wanted:
            node = copy.deepcopy(wanted)
            node.numeric_id, node.uid, node.created = kernel.numeric_id(), kernel.hex(16), kernel.state.time
            kernel.state.nodes[wanted.zone, wanted.name] = node
        kernel.schedule(kernel.settings.latency.node_create, "queued.ready", *found.tag)

    def _ready(self, *tag: object) -> None:
        found, kernel = self._current(*tag), self._kernel
        if found is None:
            return
        fate = found.fate.kind if found.fate else None
        if fate is FaultKind.NEVER_ACTIVE:
            self._drop(self.members(found))
            again = max(SHORTEST_WAIT, kernel.settings.latency.queued_start)
            kernel.schedule(again, "queued.start", *found.tag)
        elif fate is FaultKind.LATE_FAILURE:
            found.error = INTERNAL
            self.suspend(found, Initiator.SERVICE)
        # The capacity may be lost during provisioning; then it waits again.
        elif fate is FaultKind.FALL_BACK or not self._stocked(found):
            found.fate = None
            self.wait(found)
        else:
            found.enter(S.ACTIVE)
            for node in self.members(found):
                self._nodes.complete(node)
            if found.run_seconds:
                tag = (found.zone, found.name, found.numeric_id)
                kernel.schedule(found.run_seconds, "queued.run-over", *tag)

    def _node_ended(self, zone: str, name: str, initiator: Initiator) -> None:
        found = self._kernel.state.queued.get((zone, name))
        if found is None:
            return
        if found.state is S.PROVISIONING and initiator is Initiator.SERVICE:
            self.wait(found)
        elif found.state in (S.PROVISIONING, S.ACTIVE):
            self.suspend(found, initiator)
        self._settle(found)

    def _nodes_deleted(self, *tag: object) -> None:
        found = self._current(*tag)
        if found:
            # A node with an open operation is removed when that ends.
            self._drop([n for n in self.members(found) if not self._kernel.open_on(n.numeric_id)])
            self._settle(found)

    def _settle(self, queued: QueuedResource) -> None:
        if queued.state is S.SUSPENDING and not self.members(queued):
            queued.enter(S.FAILED if queued.error else S.SUSPENDED, queued.initiator)

    def _expired(self, zone: str, name: str, numeric_id: int) -> None:
        found = self._kernel.state.queued.get((zone, name))
        if found and found.numeric_id == numeric_id and found.state in WAITING:
            self.fail(found, EXPIRED)

    def _run_over(self, zone: str, name: str, numeric_id: int) -> None:
        """
        End a flex-start resource: its nodes are deleted, and it is SUSPENDED (docs/facts.md 1.5).

        Whether machines get a notice first is not known; here they do not. A reset in between changes
        nothing.
        """
        found = self._kernel.state.queued.get((zone, name))
        if found and found.numeric_id == numeric_id and found.state is S.ACTIVE:
            self.suspend(found, Initiator.SERVICE)

    def _deleted(self, operation_name: str, *tag: object) -> None:
        operation, found = self._kernel.state.operations[operation_name], self._current(*tag)
        if found and not operation.planned:
            self._drop(self.members(found))
            del self._kernel.state.queued[found.zone, found.name]
        self._kernel.finish(operation, operation.planned)

    def _restarted(self, operation_name: str, *tag: object) -> None:
        operation, found = self._kernel.state.operations[operation_name], self._current(*tag)
        if operation.planned or found is None:
            self._kernel.finish(operation, operation.planned or node_rules.CANCELLED)
            return
        for node in self.members(found):
            if node.state is NodeState.RESTARTING:
                node.enter(NodeState.READY)
                for worker in self._machines(node):
                    self._kernel.boot(worker)
        self._kernel.finish(operation, result=copy.deepcopy(found))

    def _stocked(self, queued: QueuedResource) -> bool:
        fate, now = queued.fate, self._kernel.state.time
        if fate and fate.kind is FaultKind.NO_CAPACITY and not 0 < fate.seconds <= now - queued.created:
            return False
        if "reservationName" in queued.body:
            known = reservations.wanted(self._kernel, queued.body["reservationName"])
            return reservations.has_room(self._kernel, known, queued.wanted, queued)
        return not self._kernel.settings.out_of_stock(queued.zone, spot="spot" in queued.body)

    def _unreserved(self, queued: QueuedResource) -> OperationError | None:
        if "reservationName" not in queued.body:
            return None
        known = reservations.wanted(self._kernel, queued.body["reservationName"])
        return reservations.refusal(self._kernel, known, queued.wanted)

    def _machines(self, node: Node) -> list[str]:
        return [worker.id for worker in node.workers if worker.id in self._kernel.state.machines]

    def _drop(self, nodes: Sequence[Node]) -> None:
        """Remove nodes on behalf of their queued resource, which is therefore not notified."""
        for node in nodes:
            # First, so that `vanish` does not notify the queued resource.
            node.queued = ""
            for operation in self._kernel.open_on(node.numeric_id):
                self._kernel.finish(operation, None if operation.verb == "delete" else node_rules.CANCELLED)
            self._nodes.vanish(node)
