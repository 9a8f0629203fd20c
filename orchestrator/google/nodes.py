"""Manage TPU nodes over the TPU API v2."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.domain.all_zones import ALL_ZONES, AllZones, ObservedAllZones
from orchestrator.domain.machines.maintenance import Maintenance
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import (
    ForeignNode,
    Node,
    NodeState,
    Observed,
    Operation,
    OperationResult,
    Present,
    Worker,
)
from orchestrator.domain.plan import Verb
from orchestrator.domain.ports import NewNode
from orchestrator.errors import NotFoundError
from orchestrator.google import operations
from orchestrator.google.answer_hooks import KnownNodes, maintenance_by_name
from orchestrator.google.bodies import node_body
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.guest_host_keys import public_keys
from orchestrator.google.hints import comparing_with_quota
from orchestrator.google.shared_lists import NEVER, ZoneLists
from orchestrator.google.unknown_on_error import (
    OverAllZones,
    across_zones,
    observed,
    pages_with_gaps,
    whole_pages,
)

PAGE = 1000
_SSH_KEYS = "ssh-keys"
STATES = {state.value: state for state in NodeState}


@dataclass(frozen=True)
class ListedNode:
    """Pair a node, as the client returns it, with the maintenance in its answer."""

    node: Any
    maintenance: Maintenance | None = None

    @property
    def labels(self) -> Any:
        """Return the node's labels."""
        return self.node.labels

    @cached_property
    def value(self) -> Node:
        """Return the node as our value; converted once, so that repeated lookups cost nothing."""
        return node_of(self)


class TpuNodes:
    """Observe, create and delete TPU nodes of one project."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lists = clients.settings.lists or ZoneLists(0)
        self._changed_at = NEVER
        self._wide = OverAllZones()

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[Node, ...]]:
        """
        List the nodes with the label in *zones*, all pages; a partial answer is Unknown.

        The API has no filter for nodes, so the labels are compared here.
        """
        known = self._lists.known(map(self._parent, dict.fromkeys(zones)), label, value, self._changed_at)
        if known is not None:
            return Present(tuple(one.value for one in known))

        def read(zone: str) -> list[Node]:
            parent = self._parent(zone)
            found = self._lists.labelled(
                parent, label, value, lambda before: self._listed(zone, before), self._changed_at
            )
            return [one.value for one in found]

        return across_zones(zones, read)

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[Node]:
        """
        List the nodes with the label in all zones by one call; places without an answer are named.

        A list with such a gap is not shared, because the next caller may get more.
        """

        def read() -> AllZones[Node]:
            gaps: list[str] = []

            def ask(before: KnownNodes) -> list[ListedNode]:
                nodes = self._listed(ALL_ZONES, before, gaps)
                if gaps:
                    # By an error, because ZoneLists stores every returned value.
                    raise _GapsError(nodes)
                return nodes

            try:
                found = self._lists.labelled(self._parent(ALL_ZONES), label, value, ask, self._changed_at)
            except _GapsError as partial:
                found = [node for node in partial.nodes if node.labels.get(label) == value]
            return AllZones(tuple(one.value for one in found), tuple(dict.fromkeys(gaps)))

        return self._wide.ask(read)

    def observe(self, name: str, zone: str) -> Observed[Node]:
        """Observe one node of any owner; errors become Unknown."""

        def read() -> Node:
            request = {"name": self._path(name, zone)}
            # The v2 client drops the next maintenance, so it is read from the raw answer (docs/facts.md 1.3).
            with translated(f"read TPU node '{name}' in {zone}"), maintenance_by_name() as beside:
                node = self._clients.tpu.get_node(request=request, **self._clients.reading)
                return node_of(ListedNode(type(node).pb(node), beside.get(node.name)))

        return observed(read)

    def create(self, new: NewNode) -> Operation:
        """
        Request the node. Its name is the only protection against a duplicate: v2 has no request id.

        Raise ConflictError if the name is taken, QuotaError if the project's quota is used up. A stockout
        appears later, on the operation.
        """
        incarnation = incarnation_of(new.name, dict(new.labels))
        parent = self._parent(new.zone)
        request = {"parent": parent, "node_id": new.name, "node": node_body(new, parent)}
        what = f"create TPU node '{new.name}' in {new.zone}"
        with self._changing(), comparing_with_quota(new.type, new.zone), translated(what):
            # The future is not waited for: the loop polls the operation, also after a restart of tpuctl.
            future = self._clients.tpu.create_node(request=request, **self._clients.mutating)
            return operations.of_tpu(future, Verb.CREATE, new.name, new.zone, incarnation)

    def delete(self, name: str, zone: str) -> Operation | None:
        """Request the deletion; None if the node does not exist."""
        try:
            with self._changing(), translated(f"delete TPU node '{name}' in {zone}"):
                future = self._clients.tpu.delete_node(name=self._path(name, zone), **self._clients.mutating)
                # A deletion may be dropped while the node is being created: only a 404 proves it (facts 1.3).
                return operations.of_tpu(future, Verb.DELETE, name, zone, incarnation_of(name, {}))
        # Google's own 404 only; one of a proxy is another error, and proves nothing.
        except NotFoundError:
            return None

    def inspect(self, name: str, zone: str) -> Observed[ForeignNode]:
        """Observe one node of any owner, with its unchangeable settings; errors become Unknown."""

        def read() -> ForeignNode:
            node = self._get(name, zone)
            return ForeignNode(
                node=node_of(ListedNode(node, None)),
                type=node.accelerator_type,
                runtime=node.runtime_version,
                account=node.service_account.email,
                scopes=tuple(node.service_account.scope),
                external_ip=node.network_config.enable_external_ips,
                network=node.network_config.network.rpartition("/")[2],
                in_queue=node.queued_resource.rpartition("/")[2],
            )

        return observed(read)

    def add_labels(self, name: str, zone: str, labels: Mapping[str, str], ssh_key: str) -> Operation:
        """
        Request additional *labels* and an SSH key on a node.

        The API replaces each map as a whole and has no precondition, so the maps are read just before.
        """
        node = self._get(name, zone)
        keys = [line for line in node.metadata.get(_SSH_KEYS, "").splitlines() if line != ssh_key]
        # The last key makes machines publish their host keys (docs/facts.md 2.4); without those we do not connect.
        metadata = {
            **node.metadata, _SSH_KEYS: "\n".join([*keys, ssh_key]), "enable-guest-attributes": "TRUE",
        }  # fmt: skip
        return self._update(name, zone, {**node.labels, **labels}, metadata)

    def remove_labels(self, name: str, zone: str, labels: Sequence[str], ssh_key: str) -> Operation | None:
        """Request the removal of *labels* and this SSH key from a node; None if it does not exist."""
        try:
            node = self._get(name, zone)
        except NotFoundError:
            return None
        keys = [line for line in node.metadata.get(_SSH_KEYS, "").splitlines() if line != ssh_key]
        others = {key: value for key, value in node.labels.items() if key not in labels}
        return self._update(name, zone, others, {**node.metadata, _SSH_KEYS: "\n".join(keys)})

    def _get(self, name: str, zone: str) -> Any:
        with translated(f"read TPU node '{name}' in {zone}"):
            node = self._clients.tpu.get_node(
                request={"name": self._path(name, zone)}, **self._clients.reading
            )
            return type(node).pb(node)

    def _update(
        self, name: str, zone: str, labels: Mapping[str, str], metadata: Mapping[str, str]
    ) -> Operation:
        request = {
            "node": {"name": self._path(name, zone), "labels": dict(labels), "metadata": dict(metadata)},
            "update_mask": {"paths": ["labels", "metadata"]},
        }
        with self._changing(), translated(f"label TPU node '{name}' in {zone}"):
            future = self._clients.tpu.update_node(request=request, **self._clients.mutating)
            return operations.of_tpu(future, Verb.UPDATE, name, zone, incarnation_of(name, dict(labels)))

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once."""
        return operations.poll_tpu(self._clients.tpu, operation, self._clients.reading)

    def host_keys(self, name: str, zone: str, worker: int) -> tuple[str, ...]:
        """
        Return one worker's public host keys from its guest attributes; NotFoundError while there are none.

        The answer holds one entry for each requested worker.
        """
        what = f"read the host keys of worker {worker} of '{name}' in {zone}"
        request = {
            "name": self._path(name, zone),
            "query_path": "hostkeys/",
            "worker_ids": [str(worker)],
        }
        with translated(what):
            answer = self._clients.tpu.get_guest_attributes(request=request, **self._clients.reading)
        entries = list(answer.guest_attributes)
        # We asked for one worker: of several entries it is not certain whose keys they are.
        return public_keys(entries[0].query_value.items if len(entries) == 1 else (), what)

    def _listed(self, zone: str, before: KnownNodes, gaps: list[str] | None = None) -> list[ListedNode]:
        what = f"list TPU nodes in {'all zones' if zone == ALL_ZONES else zone}"
        with translated(what), maintenance_by_name() as beside, before.listing():
            request = {"parent": self._parent(zone), "page_size": PAGE}
            answer = self._clients.tpu.list_nodes(request=request, **self._clients.reading)
            pages = whole_pages(answer, what) if gaps is None else pages_with_gaps(answer, gaps)
            nodes = [node for page in pages for node in type(page).pb(page).nodes]
        return before.complete(ListedNode(node, beside.get(node.name)) for node in nodes)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Invalidate shared lists from before our change, even if its answer is lost: it may have happened."""
        try:
            yield
        finally:
            self._changed_at = self._lists.moment()

    def _parent(self, zone: str) -> str:
        return f"projects/{self._clients.project}/locations/{zone}"

    def _path(self, name: str, zone: str) -> str:
        return f"{self._parent(zone)}/nodes/{name}"


class _GapsError(Exception):
    """Carry the *nodes* of a list that omits places."""

    def __init__(self, nodes: list[ListedNode]) -> None:
        super().__init__(nodes)
        self.nodes = nodes


def node_of(listed: ListedNode) -> Node:
    """
    Convert a tpu v2 Node, given as the raw protocol buffer, to our value.

    The client's wrapper class takes as long for each field as this whole function.
    """
    node = listed.node
    _, _, _, zone, _, name = node.name.split("/")
    labels = dict(node.labels)
    health = _health(node)
    return Node(
        name=name,
        zone=zone,
        # A number that this release does not know is no proof that the node is lost.
        state=STATES.get(node.state, NodeState.STATE_UNSPECIFIED),
        incarnation=incarnation_of(name, labels),
        healthy=health in {"HEALTHY", "HEALTH_UNSPECIFIED"},
        health=": ".join(part for part in (health, node.health_description) if part),
        timed_out=health == "TIMEOUT",
        workers=_workers(node),
        labels=labels,
        # The older form, of a node that others created, can be taken away as well (docs/facts.md 1.4).
        spot=node.scheduling_config.spot or node.scheduling_config.preemptible,
        created_at=(node.create_time.seconds * 10**6 + node.create_time.nanos // 1000) / 10**6,
        maintenance=listed.maintenance,
        scopes=tuple(node.service_account.scope),
    )


def _health(node: Any) -> str:
    """Return the health's name, or the number of one that this client does not know."""
    known = node.DESCRIPTOR.fields_by_name["health"].enum_type.values_by_number.get(node.health)
    return known.name if known else str(node.health)


def _workers(node: Any) -> tuple[Worker, ...]:
    """Return the workers: with n networks, entry i*n is worker i (docs/facts.md 1.3)."""
    networks = max(1, len(node.network_configs))
    first = list(node.network_endpoints)[::networks]
    return tuple(Worker(i, e.ip_address, e.access_config.external_ip) for i, e in enumerate(first))
