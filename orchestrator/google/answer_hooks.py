"""
Prepare the TPU API's answers for the v2 client, which does not know all of their content.

The client's REST transport opens each `google.protobuf.Any` of an answer and raises ParseError for an
unregistered type, or for an unknown field inside an operation. The call has succeeded by then, so its
operation's id, `done` and `error` must not be lost.

The next maintenance of a node is in the API's v2 schema and in the v2alpha1 client (docs/facts.md 1.3). The
v2 client drops it, so it is read from the same answer, without another call or another version of the API.

A list of nodes holds every node of a zone, and the client takes 0.1 ms to parse each. Most have not changed
since the list before, so only the others are passed to it.
"""

import hashlib
import io
import json
import marshal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from orchestrator.domain.machines.maintenance import FIELD, Maintenance, maintenance_of
from orchestrator.google.lean_imports import imported

_OPERATION = frozenset({"name", "metadata", "done", "error", "response"})
_STRUCT = "type.googleapis.com/google.protobuf.Struct"
# A context variable, not a field: several threads list zones over one session.
_found: ContextVar[dict[str, Maintenance] | None] = ContextVar("found", default=None)
_LISTENERS: list[Callable[[Any], None]] = []


@contextmanager
def listening(listener: Callable[[Any], None]) -> Iterator[None]:
    """Pass each answer (requests.Response) that any client gets during the block to *listener*."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def notify_of_answers(session: Any) -> None:
    """Make *session* pass each answer to the listeners, as received."""
    session.hooks["response"].insert(0, _notify_listeners)


def _notify_listeners(response: Any, **_options: Any) -> None:
    # A copy, because another thread may remove a listener meanwhile.
    for listener in tuple(_LISTENERS):
        listener(response)


def step_over_unknown_types(session: Any) -> None:
    """Make *session*, a requests session, return every answer in a form that the client can parse."""
    session.hooks["response"].append(_readable)


def readable(value: Any) -> Any:
    """
    Return a JSON answer with each Any of an unknown type as a Struct, which keeps its fields.

    Fields that the client does not know are dropped from Anys of known types, and from operations.
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
    # Strict first, so that an Any which the client can parse stays as it is.
    for strict in (True, False):
        try:
            message = json_format.ParseDict(value, message_class(), ignore_unknown_fields=not strict)
        except (json_format.ParseError, TypeError):
            continue
        found: dict[str, Any] = value if strict else json_format.MessageToDict(message)
        return found
    return {"@type": _STRUCT, "value": {key: one for key, one in value.items() if key != "@type"}}


def _readable(response: Any, **_options: Any) -> Any:
    """Return the response, or a copy with a readable body if the client could not parse its own."""
    # Most answers contain no Any, and those of other types are not examined.
    if b'"@type"' not in response.content and b"/operations/" not in response.content:
        return response
    try:
        body = response.json()
    except ValueError:
        return response
    shown = readable(body)
    return response if shown == body else _with_body(response, shown)


def _with_body(response: Any, body: Any) -> Any:
    """Return a copy of a requests response with another *body*."""
    copy = type(response)()
    copy.status_code, copy.reason = response.status_code, response.reason
    copy.headers, copy.url, copy.request = response.headers, response.url, response.request
    copy.encoding, copy.elapsed, copy.history = "utf-8", response.elapsed, response.history
    copy.raw = io.BytesIO(json.dumps(body).encode())
    return copy


def collect_maintenance(session: Any) -> None:
    """Make *session*, a requests session, report the maintenance in its answers to `maintenance_by_name`."""
    session.hooks["response"].append(_collect)


@contextmanager
def maintenance_by_name() -> Iterator[dict[str, Maintenance]]:
    """Collect the maintenance in the answers to this block's calls, by the node's full name."""
    found: dict[str, Maintenance] = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def _collect(response: Any, **_options: Any) -> None:
    # Most answers contain none, and are not parsed a second time.
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


class KnownNodes:
    """
    Keep the nodes of the last list of one place, each by a digest of everything that the API shows of it.

    A node with any change, even of the order of its keys, has another digest and is parsed again. The kept
    value holds the node, as the client returns it, in its field `node`.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, Any] = {}
        self._listed: dict[bytes, str] = {}

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Remove the unchanged nodes from the answers to this block's calls."""
        self._listed = {}
        token = _known_nodes.set(self)
        try:
            yield
        finally:
            _known_nodes.reset(token)

    def news_in(self, nodes: list[Any]) -> list[Any]:
        """Return those of a page's *nodes* that differ from the last list, and record all of them."""
        news = []
        for node in nodes:
            # Without references, so that equal values give equal bytes wherever their texts are in memory.
            digest = hashlib.blake2b(marshal.dumps(node, 2), digest_size=16).digest()
            self._listed[digest] = str(node.get("name", "")) if isinstance(node, dict) else ""
            if digest not in self._last:
                news.append(node)
        return news

    def complete(self, news: Iterable[Any]) -> list[Any]:
        """Return the whole list in order, after all pages; *news* are the nodes that were parsed."""
        fresh = {one.node.name: one for one in news}
        found = {
            digest: self._last[digest] if digest in self._last else fresh.pop(name, None)
            for digest, name in self._listed.items()
        }
        self._last = {digest: one for digest, one in found.items() if one is not None}
        # Nodes that no page showed are kept: the list may have come another way than through the hooked session.
        return [*self._last.values(), *fresh.values()]


_known_nodes: ContextVar[KnownNodes | None] = ContextVar("known_nodes", default=None)


def leave_out_known(session: Any) -> None:
    """Make *session*, a requests session, omit the nodes that a `KnownNodes` has recorded."""
    session.hooks["response"].append(_news)


def _news(response: Any, **_options: Any) -> Any:
    known = _known_nodes.get()
    if known is None or response.status_code != 200:
        return response
    try:
        body = response.json()
    except ValueError:
        return response
    nodes = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(nodes, list):
        return response
    news = known.news_in(nodes)
    return response if len(news) == len(nodes) else _with_body(response, {**body, "nodes": news})
