"""Manage queued resources over the TPU API v2."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.domain.all_zones import ALL_ZONES, AllZones, ObservedAllZones
from orchestrator.domain.machines.queued_resource import QueuedResource, QueuedState
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Observed, Operation, OperationResult
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import NewNode
from orchestrator.errors import NotFoundError
from orchestrator.google import operations
from orchestrator.google.bodies import queued_body, queued_json
from orchestrator.google.client_errors import translate_status, translated
from orchestrator.google.clients import Clients
from orchestrator.google.hints import comparing_with_quota
from orchestrator.google.lean_imports import imported
from orchestrator.google.unknown_on_error import (
    OverAllZones,
    across_zones,
    observed,
    pages_with_gaps,
    whole_pages,
)

GOOGLE = "https://tpu.googleapis.com"
PAGE = 1000
_BY_USER = 1  # QueuedResourceState.StateInitiator


class TpuQueuedResources:
    """Observe, create and delete queued resources of one project."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._wide = OverAllZones()

    def observe(self, name: str, zone: str) -> Observed[QueuedResource]:
        """Observe one queued resource; errors become Unknown. A new one may be Absent for a moment."""

        def read() -> QueuedResource:
            with translated(f"read queued resource '{name}' in {zone}"):
                path = self._path(name, zone)
                return queued_of(self._clients.tpu.get_queued_resource(name=path, **self._clients.reading))

        return observed(read)

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[QueuedResource, ...]]:
        """List those whose node has the label in *zones*, all pages; a partial answer is Unknown."""
        return across_zones(
            zones, lambda zone: [q for q in self._listed(zone) if q.labels.get(label) == value]
        )

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[QueuedResource]:
        """List those whose node has the label in all zones; places without an answer are named."""

        def read() -> AllZones[QueuedResource]:
            gaps: list[str] = []
            found = self._listed(ALL_ZONES, gaps)
            ours = tuple(one for one in found if one.labels.get(label) == value)
            return AllZones(ours, tuple(dict.fromkeys(gaps)))

        return self._wide.ask(read)

    def create(self, new: NewNode, wait: float | None) -> Operation:
        """
        Put the request into the queue, for at most *wait* seconds; raise ConflictError if the name is taken.

        The name protects against duplicates, as for nodes, so no request id is sent.
        """
        parent = self._parent(new.zone)
        body = queued_body(new, parent, wait)
        request = {"parent": parent, "queued_resource_id": new.name, "queued_resource": body}
        what = f"create queued resource '{new.name}' in {new.zone}"
        incarnation = incarnation_of(new.name, dict(new.labels))
        with comparing_with_quota(new.type, new.zone), translated(what):
            if new.run_seconds:
                answer = _create_by_alpha(self._clients, parent, new.name, body)
                return operations.of_json(answer, Verb.CREATE, new.name, new.zone, incarnation)
            future = self._clients.tpu.create_queued_resource(request=request, **self._clients.mutating)
        return _operation(future, Verb.CREATE, new.name, new.zone, incarnation)

    def delete(self, name: str, zone: str, *, force: bool) -> Operation | None:
        """Request the deletion; None if it does not exist. Only *force* deletes its nodes as well."""
        request = {"name": self._path(name, zone), "force": force}
        try:
            with translated(f"delete queued resource '{name}' in {zone}"):
                future = self._clients.tpu.delete_queued_resource(request=request, **self._clients.mutating)
        except NotFoundError:
            return None
        return _operation(future, Verb.DELETE, name, zone, incarnation_of(name, {}))

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once; that of a create ends when the request is in the queue."""
        return operations.poll_tpu(self._clients.tpu, operation, self._clients.reading)

    def _listed(self, zone: str, gaps: list[str] | None = None) -> list[QueuedResource]:
        what = f"list queued resources in {'all zones' if zone == ALL_ZONES else zone}"
        with translated(what):
            request = {"parent": self._parent(zone), "page_size": PAGE}
            answer = self._clients.tpu.list_queued_resources(request=request, **self._clients.reading)
            pages = whole_pages(answer, what) if gaps is None else pages_with_gaps(answer, gaps)
            return [queued_of(found) for page in pages for found in page.queued_resources]

    def _parent(self, zone: str) -> str:
        return f"projects/{self._clients.project}/locations/{zone}"

    def _path(self, name: str, zone: str) -> str:
        return f"{self._parent(zone)}/queuedResources/{name}"


def queued_of(resource: Any) -> QueuedResource:
    """Convert a tpu v2 QueuedResource to our value."""
    _, _, _, zone, _, name = resource.name.split("/")
    specs = list(resource.tpu.node_spec)
    labels = dict(specs[0].node.labels) if specs else {}
    found = QueuedResource(
        name=name,
        zone=zone,
        state=_state(int(resource.state.state)),
        incarnation=incarnation_of(name, labels),
        nodes=tuple(spec.node_id for spec in specs),
        labels=labels,
        spot="spot" in resource,
        created_at=resource.create_time.timestamp() if resource.create_time else 0.0,
        until=_until(resource),
        by_user=int(resource.state.state_initiator) == _BY_USER,
    )
    error = resource.state.failed_data.error
    if not error.code:
        return found
    what = f"queued resource '{name}' in {zone}"
    judged = translate_status(error.code, error.message, error.details, what=what)
    return replace(found, retry=judged.retry, code=judged.code, message=judged.message, hint=judged.hint)


def _until(resource: Any) -> float:
    """Return when a waiting queued resource gives up, in seconds since the epoch; 0 for never."""
    policy = resource.queueing_policy if "queueing_policy" in resource else None
    if policy is None:
        return 0.0
    if "valid_until_time" in policy:
        return float(policy.valid_until_time.timestamp())
    if "valid_until_duration" in policy and resource.create_time:
        return float(resource.create_time.timestamp() + policy.valid_until_duration.total_seconds())
    return 0.0


def _state(number: int) -> QueuedState:
    known = {state.value for state in QueuedState}
    return QueuedState(number) if number in known else QueuedState.STATE_UNSPECIFIED


def _operation(future: Any, verb: Verb, name: str, zone: str, incarnation: int | None) -> Operation:
    return replace(operations.of_tpu(future, verb, name, zone, incarnation), kind=Kind.QUEUED)


def _create_by_alpha(clients: Clients, parent: str, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Request a flex-start queued resource from v2alpha1; return its operation as JSON. Raise the clients' errors.

    The v2alpha1 client has neither the fields nor a REST transport (docs/facts.md 1.5), so the request is
    sent as JSON over the v2 client's session: the same login, payer, limits and recorder. Everything else
    stays v2, which lists and deletes what v2alpha1 has created.
    """
    exceptions = imported("google.api_core.exceptions")
    host = clients.settings.endpoint or GOOGLE
    answer = clients.tpu.transport._session.post(  # noqa: SLF001 - as in Clients
        f"{host}/v2alpha1/{parent}/queuedResources",
        params={"queuedResourceId": name},
        data=json.dumps(queued_json(body)),
        headers={"Content-Type": "application/json"},
        timeout=clients.settings.call_timeout,
    )
    if answer.status_code >= 400:
        raise exceptions.from_http_response(answer)
    found = answer.json()
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise exceptions.Unknown("the answer is not an operation")
    return found
