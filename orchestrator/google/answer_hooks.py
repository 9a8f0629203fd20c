"""
Answers of the TPU API that hold what the client of v2 does not know.

The client's REST transport opens each `google.protobuf.Any` of an answer and raises ParseError for a type
that is not registered, or for a field it does not know inside an operation. The call has worked by then: its
operation's id, `done` and `error` must not be lost for it.

The next maintenance of a node is in the API's schema of v2 and in the client of v2alpha1 (docs/facts.md 1.3).
The client of v2 drops it, so it is read from the same answer: no further call, and no other version of the API.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from orchestrator.domain.maintenance import FIELD, Maintenance, maintenance_of
from orchestrator.google.lean_imports import imported

_OPERATION = frozenset({"name", "metadata", "done", "error", "response"})
_STRUCT = "type.googleapis.com/google.protobuf.Struct"
# A context variable, not a field: zones are listed by several threads over one session.
_found: ContextVar[dict[str, Maintenance] | None] = ContextVar("found", default=None)


def step_over_unknown_types(session: Any) -> None:
    """Let *session*, a requests session, hand on each answer in a form that the client can parse."""
    session.hooks["response"].append(_readable)


def readable(value: Any) -> Any:
    """
    Return a JSON answer with each Any of an unknown type as a Struct, which keeps its fields.

    Of a known type the fields that this client does not know are left out, and of an operation its unknown
    fields too.
    """
    if isinstance(value, list):
        return [readable(one) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("@type"), str):
        return _any(value)
    known = {key: readable(one) for key, one in value.items()}
    is_operation = "/operations/" in str(value.get("name", "")) and "done" in value
    return {key: one for key, one in known.items() if key in _OPERATION} if is_operation else known


def _any(value: dict[str, Any]) -> dict[str, Any]:
    json_format = imported("google.protobuf.json_format")
    message_class = imported("google.protobuf.any_pb2").Any
    # Strict first: an Any that the client can parse goes on as it is.
    for strict in (True, False):
        try:
            message = json_format.ParseDict(value, message_class(), ignore_unknown_fields=not strict)
        except (json_format.ParseError, TypeError):
            continue
        found: dict[str, Any] = value if strict else json_format.MessageToDict(message)
        return found
    return {"@type": _STRUCT, "value": {key: one for key, one in value.items() if key != "@type"}}


def _readable(response: Any, **_options: Any) -> Any:
    """Return the response, or a copy with a readable body where its own is not."""
    # Most answers hold no Any at all, and those of other kinds are not looked into.
    if b'"@type"' not in response.content and b"/operations/" not in response.content:
        return response
    try:
        body = response.json()
    except ValueError:
        return response
    shown = readable(body)
    if shown == body:
        return response
    copy = type(response)()
    copy.status_code, copy.reason = response.status_code, response.reason
    copy.headers, copy.url, copy.request = response.headers, response.url, response.request
    copy.encoding, copy.elapsed, copy.history = "utf-8", response.elapsed, response.history
    copy.raw = io.BytesIO(json.dumps(shown).encode())
    return copy


@dataclass(frozen=True)
class ListedNode:
    """Pair a node, as the client returns it, with the maintenance in its answer."""

    node: Any
    maintenance: Maintenance | None = None

    @property
    def labels(self) -> Any:
        """Return the node's labels."""
        return self.node.labels


def collect_maintenance(session: Any) -> None:
    """Let *session*, a requests session, hand the maintenance in its answers to `maintenance_by_name`."""
    session.hooks["response"].append(_collect)


@contextmanager
def maintenance_by_name() -> Iterator[dict[str, Maintenance]]:
    """Collect the maintenance that the answers of this block's calls name, by the node's full name."""
    found: dict[str, Maintenance] = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def _collect(response: Any, **_options: Any) -> None:
    # Most answers name none, and are not parsed a second time.
    found = _found.get()
    if found is None or FIELD.encode() not in response.content:
        return
    try:
        body = response.json()
    except ValueError:
        return
    shown = body if isinstance(body, dict) else {}
    listed = shown.get("nodes")
    for node in listed if isinstance(listed, list) else [shown]:
        maintenance = maintenance_of(node.get(FIELD)) if isinstance(node, dict) else None
        if maintenance is not None:
            found[str(node.get("name", ""))] = maintenance
