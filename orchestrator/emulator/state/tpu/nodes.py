"""Implement Cloud TPU v2's nodes, created by a call of their own or for a queued resource."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.emulator.state import tables
from orchestrator.emulator.state.api_errors import OperationError, tpu_case
from orchestrator.emulator.state.billing import Usage
from orchestrator.emulator.state.constraints import node_refusal
from orchestrator.emulator.state.identifiers import timestamp
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.slices import attributes, build_workers
from orchestrator.emulator.state.tpu import node_disks, node_rules, queued_rules, reservations
from orchestrator.emulator.state.values.faults import BIRTHS, FaultKind
from orchestrator.emulator.state.values.node import DEAD, VERBS, Health, Node, NodeState
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.values.queued import Initiator

_DAY = 24 * 3600.0
MAINTENANCE = 3 * 3600.0
"""Seconds of a maintenance window; Google's duration is not known."""
SETTLING = 600.0
"""Maximum seconds for which the creation of a node counts as settling."""


class TpuNodes:
    """
    Creates, changes and deletes nodes; each verb returns its operation at once.

    Deleting a node whose creation is settling is silently dropped, as measured on the real service
    (docs/facts.md 1.3): the operation succeeds, and the node comes up. For how long is not known; here, as
    long as the creation runs, at most SETTLING. Not known about the real API, assumed here: a later deletion
    of a node that is still being created cancels the creation (open operations end with code 1); a verb in a
    state that forbids it is refused on the call with 400 and the text seen for update ("... is not supported
    while in state ..."); while another operation runs the answer is 409 ABORTED.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        kernel.handlers |= {
            "node.created": self._created,
            "node.changed": self._changed,
            "node.preempted": self._preempted,
            "node.expired": self._expired,
            "node.maintenance": self._maintenance,
        }

    def listed(self, zone: str) -> tuple[list[Node], list[str]]:
        """Return the nodes of *zone* (`-`: all zones) sorted by zone and name, and the zones not reached."""
        zones, silent = node_rules.listed_zones(self._kernel, zone)
        nodes = self._kernel.state.nodes
        return [nodes[key] for key in sorted(nodes) if key[0] in zones], silent

    def get(self, zone: str, name: str) -> Node:
        """Return a node. Raise ApiError 404."""
        node_rules.check_zone(self._kernel, zone)
        node = self._kernel.state.nodes.get((zone, name))
        if node is None:
            raise tpu_case("node not found").error(**self._kernel.values(CallTarget(zone, name)))
        return node

    def create(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Start to create a node from *body* (JSON of Node). Raise ApiError."""
        kernel, target = self._kernel, CallTarget(zone, name)
        node = node_rules.drafted(kernel, target, body)
        node_rules.check_quota(kernel, node)
        node.birth = kernel.armed if kernel.armed and kernel.armed.kind in BIRTHS else None
        lacking = self._lacking(node, target)
        kernel.state.nodes[zone, name] = node
        operation = kernel.begin(
            Api.TPU, f"zones/{zone}", "create", node.path, node.numeric_id, target=target
        )
        operation.planned = operation.planned or lacking
        operation.planned = operation.planned or node_refusal(kernel, target, node.body)
        kernel.proceed(operation, kernel.settings.latency.node_create, "node.created", zone, name, node.epoch)
        return operation

    def _lacking(self, node: Node, target: CallTarget) -> OperationError | None:
        """Return why there is no capacity for a new node, in its zone or its reservations; else None."""
        kernel = self._kernel
        if not node.reserved:
            out = kernel.settings.out_of_stock(node.zone, spot=node.spot)
            return tpu_case("stockout").operation_error(**kernel.values(target)) if out else None
        known = reservations.in_zone(kernel, node.zone)
        refused = reservations.refusal(kernel, known, [node])
        full = not reservations.has_room(kernel, known, [node])
        return refused or (reservations.lacking(kernel) if full else None)

    def delete(self, zone: str, name: str) -> Operation:
        """Start to delete a node. Raise ApiError."""
        kernel, node = self._kernel, self.get(zone, name)
        earlier = kernel.open_on(node.numeric_id)
        if self._drops_deletion(node, earlier):
            target = CallTarget(zone, name)
            operation = kernel.begin(
                Api.TPU, f"zones/{zone}", "delete", node.path, node.numeric_id, target=target
            )
            kernel.proceed(operation, kernel.settings.latency.node_delete, "node.delete-dropped")
            return operation
        operation = self._start_verb(node, "delete", kernel.settings.latency.node_delete)
        if operation.planned:
            return operation
        # Not measured: what happens to a creation during a deletion (see the class docstring).
        for other in earlier:
            kernel.finish(other, node_rules.CANCELLED)
        self.leave(node)
        queued_rules.notify(kernel, node, Initiator.USER)
        return operation

    def _drops_deletion(self, node: Node, running: Sequence[Operation]) -> bool:
        settings, now = self._kernel.settings, self._kernel.state.time
        creating = any(one.verb == "create" and now - one.created < SETTLING for one in running)
        return settings.drops_early_deletions and node.state is NodeState.CREATING and creating

    def leave(self, node: Node) -> None:
        """Start the end of a node: its machines get a notice, and billing stops."""
        self._warn_workers(node)
        self._kernel.bill_until_now(node.path, "tpu")

    def complete(self, node: Node) -> None:
        """Give a node that is being created its machines and make it READY."""
        if not node.workers:
            self._make_machines(node)
        self._go_ready(node)
        if node.preemptible:
            self._kernel.schedule(_DAY, "node.expired", node.zone, node.name, node.numeric_id)

    def stop(self, zone: str, name: str) -> Operation:
        """
        Start to stop an on-demand single-host node. Raise ApiError.

        Known: gcloud says that spot and preemptible nodes cannot be restarted; slices of several hosts can
        only be deleted. Not known: the API's own answer to such a stop; here, 400.
        """
        node = self.get(zone, name)
        node_rules.check_stoppable(self._kernel, node)
        operation = self._start_verb(node, "stop", self._kernel.settings.latency.node_change)
        if not operation.planned:
            self._warn_workers(node)
        return operation

    def start(self, zone: str, name: str) -> Operation:
        """Start a stopped node; the operation may end with a stockout. Raise ApiError."""
        node = self.get(zone, name)
        return self._start_verb(node, "start", self._kernel.settings.latency.node_create)

    def update(self, zone: str, name: str, body: Mapping[str, Any], mask: str) -> Operation:
        """Change the fields in *mask* (comma-separated). Raise ApiError."""
        node = self.get(zone, name)
        changes = node_rules.changes(body, mask)
        return self._start_verb(node, "update", self._kernel.settings.latency.node_change, changes)

    def preempt(self, node: Node, *, notice: bool) -> None:
        """
        Preempt a node: remove its machines, after a notice or at once.

        A node that is being created is lost at once, since it has no machine to warn.
        """
        kernel = self._kernel
        if notice:
            self._warn_workers(node, preempted=True)
        delay = kernel.settings.latency.notice if notice and node.state is not NodeState.CREATING else 0.0
        if delay:
            kernel.schedule(delay, "node.preempted", node.zone, node.name, node.numeric_id)
        else:
            self._preempted(node.zone, node.name, node.numeric_id)

    def vanish(self, node: Node) -> None:
        """Remove the node without an operation, as if it had never existed."""
        self._end_machines(node)
        self._kernel.bill_until_now(node.path, "tpu")
        self._kernel.state.nodes.pop((node.zone, node.name), None)
        queued_rules.notify(self._kernel, node, Initiator.SERVICE)
        self._kernel.touch()

    def end(self, node: Node, state: NodeState) -> None:
        """Remove a node's machines and leave it in *state* (PREEMPTED or TERMINATED)."""
        kernel = self._kernel
        target = CallTarget(node.zone, node.name)
        lost = tpu_case("preempted while creating").operation_error(**kernel.values(target))
        for operation in kernel.open_on(node.numeric_id):
            kernel.finish(operation, lost)
        self._end_machines(node)
        node.enter(state)
        kernel.bill_until_now(node.path, "tpu", preempted=state is NodeState.PREEMPTED)
        queued_rules.notify(kernel, node, Initiator.SERVICE)
        kernel.touch()

    def announce(self, node: Node, seconds: float) -> None:
        """
        Announce a maintenance that starts in *seconds* and lasts MAINTENANCE.

        Its effect on the machines is a separate fault.
        """
        begins = self._kernel.state.time + seconds
        node.maintenance = {
            "type": "SCHEDULED",
            "canReschedule": False,
            "windowStartTime": timestamp(begins),
            "windowEndTime": timestamp(begins + MAINTENANCE),
            "latestWindowStartTime": timestamp(begins),
            "maintenanceStatus": "PENDING",
        }
        self._kernel.schedule(seconds, "node.maintenance", node.zone, node.name, node.numeric_id, "ONGOING")
        self._kernel.schedule(
            seconds + MAINTENANCE, "node.maintenance", node.zone, node.name, node.numeric_id, ""
        )

    def _maintenance(self, zone: str, name: str, numeric_id: int, status: str) -> None:
        node = self._kernel.state.nodes.get((zone, name))
        if node is not None and node.numeric_id == numeric_id and node.maintenance is not None:
            node.maintenance = {**node.maintenance, "maintenanceStatus": status} if status else None
            self._kernel.touch()

    def _start_verb(
        self, node: Node, verb: str, delay: float, changes: Mapping[str, Any] | None = None
    ) -> Operation:
        kernel, target = self._kernel, CallTarget(node.zone, node.name)
        allowed, meanwhile, _ = VERBS[verb]
        node_rules.check_verb(kernel, node, verb, allowed)
        operation = kernel.begin(
            Api.TPU, f"zones/{node.zone}", verb, node.path, node.numeric_id, target=target
        )
        out = kernel.settings.out_of_stock(node.zone, spot=node.spot)
        if verb == "start" and out and operation.planned is None:
            operation.planned = tpu_case("stockout on start").operation_error(**kernel.values(target))
        # A deletion that is going to fail leaves the node's state as it is.
        if meanwhile and not (operation.planned and verb == "delete"):
            node.enter(meanwhile)
        kernel.proceed(
            operation, delay, "node.changed", node.zone, node.name, node.epoch, dict(changes or {})
        )
        return operation

    def _current(self, zone: str, name: str, epoch: int) -> Node | None:
        node = self._kernel.state.nodes.get((zone, name))
        # Each change of state has a new epoch, so events planned before it find nothing.
        return node if node and node.epoch == epoch else None

    def _created(self, operation_name: str, zone: str, name: str, epoch: int) -> None:
        kernel, operation = self._kernel, self._kernel.state.operations[operation_name]
        node = self._current(zone, name, epoch)
        # Preempted, deleted or suspended during the creation; that call has ended this operation.
        if node is None or operation.done:
            return
        if operation.planned:
            del kernel.state.nodes[zone, name]
            kernel.finish(operation, operation.planned)
            return
        if node.birth and node.birth.kind is FaultKind.LATE_READY and not node.workers:
            self._make_machines(node)
            self._boot(node)
            kernel.schedule(node.birth.seconds, "node.created", operation_name, zone, name, epoch)
            return
        self.complete(node)
        kernel.finish(operation, result=copy.deepcopy(node))

    def _changed(
        self, operation_name: str, zone: str, name: str, epoch: int, changes: dict[str, Any]
    ) -> None:
        kernel, operation = self._kernel, self._kernel.state.operations[operation_name]
        node = self._current(zone, name, epoch)
        if operation.done:
            return
        if node is None:
            gone = tpu_case("preempted while creating").operation_error(
                **kernel.values(CallTarget(zone, name))
            )
            kernel.finish(operation, gone)
        elif operation.planned:
            if VERBS[operation.verb][1] is node.state:
                node.enter(node.before)
            kernel.finish(operation, operation.planned)
        else:
            self._take_effect(node, operation.verb, changes)
            kernel.finish(operation, result=copy.deepcopy(node) if operation.verb != "delete" else None)

    def _take_effect(self, node: Node, verb: str, changes: dict[str, Any]) -> None:
        kernel = self._kernel
        if verb == "delete":
            self.vanish(node)
        elif verb == "stop":
            for worker in node.workers:
                kernel.halt(worker.id)
            node.enter(NodeState.STOPPED)
            kernel.bill_until_now(node.path, "tpu")
        elif verb == "start":
            self._go_ready(node)
        else:
            self._apply(node, changes)

    def _apply(self, node: Node, changes: dict[str, Any]) -> None:
        for field, value in changes.items():
            known = node.body.get(field)
            node.body[field] = {**known, **value} if field == "networkConfig" and known else value
        for index, worker in enumerate(node.workers):
            machine = self._kernel.state.machines.get(worker.id)
            if machine:
                endpoints = machine.attributes["worker-network-endpoints"]
                fresh = attributes(self._kernel.settings, node, index, machine.numeric_id, endpoints)
                tags = tuple(node.body.get("tags", ()))
                self._kernel.change_machine(replace(machine, attributes=fresh, tags=tags))

    def _make_machines(self, node: Node) -> None:
        count, kernel = node.accelerator.hosts, self._kernel
        addresses = [kernel.state.pool.take() for _ in range(count)]
        node.workers = build_workers(
            kernel.settings, node, addresses, [kernel.numeric_id() for _ in range(count)]
        )
        disks = node_disks.folders(kernel, node)
        node.workers = (
            tuple(replace(worker, disks=disks) for worker in node.workers) if disks else node.workers
        )
        if node.birth and node.birth.kind is FaultKind.SILENT:
            node.workers = tuple(replace(worker, silent=True) for worker in node.workers)
        for worker in node.workers:
            kernel.add_machine(worker)
            kernel.state.guest[worker.id]["guest-attributes", "hostname"] = worker.name

    def _go_ready(self, node: Node) -> None:
        kernel, kind = self._kernel, node.accelerator
        node.enter(NodeState.READY)
        sick = node.birth and node.birth.kind is FaultKind.BORN
        node.health = Health[node.birth.case] if node.birth and sick else Health.HEALTHY
        price = tables.tpu_price(kind, node.zone, node.spot)
        hourly = None if price is None else price * kind.chips
        kernel.bill_from_now(
            Usage(node.path, "tpu", node.zone, kind.type, hourly, node.spot, kernel.state.time)
        )
        self._boot(node)

    def _boot(self, node: Node) -> None:
        for worker in node.workers:
            if not self._kernel.state.flags[worker.id].running:
                self._kernel.boot(worker.id)

    def _warn_workers(self, node: Node, *, preempted: bool = False) -> None:
        for worker in node.workers:
            if worker.id in self._kernel.state.machines:
                self._kernel.warn(worker.id, preempted=preempted)

    def _end_machines(self, node: Node) -> None:
        for worker in node.workers:
            self._kernel.remove_machine(worker.id)

    def _preempted(self, zone: str, name: str, numeric_id: int) -> None:
        self._end_if_current(zone, name, numeric_id, NodeState.PREEMPTED)

    def _expired(self, zone: str, name: str, numeric_id: int) -> None:
        self._end_if_current(zone, name, numeric_id, NodeState.TERMINATED)

    def _end_if_current(self, zone: str, name: str, numeric_id: int, state: NodeState) -> None:
        node = self._kernel.state.nodes.get((zone, name))
        if node and node.numeric_id == numeric_id and node.state not in DEAD | {NodeState.DELETING}:
            self.end(node, state)
