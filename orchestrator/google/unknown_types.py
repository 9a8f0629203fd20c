"""
Answers of the TPU API that name message types or fields that this client does not know.

The client's REST transport opens each `google.protobuf.Any` of an answer and raises ParseError for a type
that is not registered, or for a field it does not know inside an operation. The call has worked by then: its
operation's id, `done` and `error` must not be lost for it.
"""

import io
import json
from typing import Any

_OPERATION = frozenset({"name", "metadata", "done", "error", "response"})
_STRUCT = "type.googleapis.com/google.protobuf.Struct"


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
    from google.protobuf import json_format
    from google.protobuf.any_pb2 import Any as Message

    for strict in (True, False):
        try:
            message = json_format.ParseDict(value, Message(), ignore_unknown_fields=not strict)
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
