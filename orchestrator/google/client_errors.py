"""Convert every error of the official clients to one of ours; `error_mapping` interprets the answers."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import TpuctlError
from orchestrator.google import refusal
from orchestrator.google.error_mapping import (
    CORRUPT,
    NETWORK,
    NO_LOGIN,
    UNKNOWN,
    ErrorMaker,
    one_line,
    to_error,
)
from orchestrator.google.lean_imports import imported
from orchestrator.google.refusal import HTTP_NAMES, GoogleRefusal, of_compute


@contextmanager
def translated(what: str) -> Iterator[None]:
    """
    Convert errors of the clients to ours; *what* begins the message, for example `create TPU node 'a'`.

    Other errors (bugs of our own) pass unchanged.
    """
    try:
        yield
    except TpuctlError:
        raise
    except Exception as error:  # `_translate` passes foreign errors on
        ours = _translate(error, what)
        if ours is None:
            raise
        raise ours from error


def translate(error: BaseException, *, what: str) -> TpuctlError:
    """
    Return our error for any error of google.api_core, google.auth, storage, requests or urllib3.

    An error that is none of these becomes UnknownCloudError.
    """
    if isinstance(error, TpuctlError):
        return error
    return _translate(error, what) or UNKNOWN(
        GoogleRefusal(""), one_line(what, f"{type(error).__name__}: {error}")
    )


def translate_status(code: int, message: str, details: Iterable[Any] = (), *, what: str) -> TpuctlError:
    """Return our error for the google.rpc.Status of a long-running operation."""
    return to_error(_of_status(code, message, details), what)


def translate_compute(code: str, message: str, http_status: int, *, what: str) -> TpuctlError:
    """Return our error for one entry of a compute operation's errors."""
    return to_error(of_compute(code, message, http_status), what)


def _translate(error: BaseException, what: str) -> TpuctlError | None:
    """Return our error, or None when *error* does not come from the clients."""
    api = imported("google.api_core.exceptions")
    # A retry that timed out hides the answer for which it retried.
    if isinstance(error, api.RetryError) and isinstance(error.cause, Exception):
        return _translate(error.cause, what)
    if isinstance(error, api.GoogleAPICallError):
        return to_error(_of_call(error), what)
    maker = _maker_without_answer(error)
    return maker(GoogleRefusal(""), one_line(what, _reason(error))) if maker else None


def _reason(error: BaseException) -> str:
    """
    Return the operating system's reason for a failed connection, else the error's text.

    The clients wrap it several times, in texts with memory addresses, which differ at each call.
    """
    inner: list[BaseException] = [error]
    for one in inner:
        if isinstance(one, OSError) and one.strerror:
            return one.strerror.lower()
        related = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        inner += [other for other in related if isinstance(other, BaseException) and other not in inner]
    # The innermost text, without the pool and the connection that it names in front.
    texts = (_ABOUT.sub("", str(one)).strip() for one in reversed(inner))
    return next((text for text in texts if text), type(error).__name__)


_ABOUT = re.compile(r"^(?:<[^>]*>|[\w.]+\([^()]*\)): ")
"""How urllib3 begins: `HTTPConnectionPool(host='h', port=80): ` or `<... object at 0x7f...>: `."""


def _maker_without_answer(error: BaseException) -> ErrorMaker | None:
    """Return what makes our error of one that contains no answer of an API."""
    api, auth = imported("google.api_core.exceptions"), imported("google.auth.exceptions")
    gcs, parsing = imported("google.cloud.storage.exceptions"), imported("google.protobuf.json_format")
    requests, urllib3 = imported("requests"), imported("urllib3.exceptions")
    table: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], ErrorMaker], ...] = (
        ((auth.TransportError, auth.TimeoutError, auth.ResponseError), NETWORK),
        (auth.GoogleAuthError, NO_LOGIN),
        (gcs.DataCorruption, CORRUPT),
        ((gcs.InvalidResponse, parsing.ParseError, api.GoogleAPIError), UNKNOWN),
        ((requests.RequestException, urllib3.HTTPError, ConnectionError, TimeoutError), NETWORK),
    )
    if isinstance(error, auth.GoogleAuthError) and getattr(error, "retryable", False):
        return NETWORK
    return next((maker for kinds, maker in table if isinstance(error, kinds)), None)


def _of_call(error: Any) -> GoogleRefusal:
    """Convert a `GoogleAPICallError`, from the JSON of its answer, else from its own fields."""
    response = getattr(error, "response", None)
    body = _error_body(response)
    details = tuple(_as_json(d) for d in body.get("details") or error.details)
    errors = body.get("errors") or error.errors
    info = next((d for d in details if str(d.get("@type", "")).endswith(".ErrorInfo")), {})
    words = [info.get("reason"), error.reason, *(e.get("reason") for e in errors if isinstance(e, Mapping))]
    grpc_code = getattr(error.grpc_status_code, "name", "")
    return GoogleRefusal(
        name=body.get("status") or grpc_code or HTTP_NAMES.get(int(error.code or 0), ""),
        reasons=tuple(str(word) for word in words if word),
        message=str(body.get("message") or error.message),
        details=details,
        in_operation=bool(grpc_code),
        structured=bool(body) or response is None,
        url=str(getattr(getattr(response, "request", None), "url", None) or ""),
    )


def _of_status(code: int, message: str, details: Iterable[Any] = ()) -> GoogleRefusal:
    """Convert the google.rpc.Status inside a long-running operation."""
    return refusal.of_status(code, message, [_as_json(detail) for detail in details])


def _error_body(response: Any) -> Mapping[str, Any]:
    """Return the `error` object of a Google answer, {} if the answer has another form."""
    try:
        payload = response.json()
    except (AttributeError, ValueError, RuntimeError):
        # RuntimeError: the client has already consumed the body of a streamed answer.
        return {}
    if isinstance(payload, list):
        payload = payload[0] if payload else {}
    error = payload.get("error") if isinstance(payload, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def _as_json(detail: Any) -> Mapping[str, Any]:
    """Return a detail as JSON with its "@type"; of an unknown type only the type's name."""
    if isinstance(detail, Mapping):
        return detail
    json_format = imported("google.protobuf.json_format")
    imported("google.rpc.error_details_pb2")  # Imported because it registers the types that an Any may hold.
    try:
        body = json_format.MessageToDict(detail)
    except (TypeError, ValueError, AttributeError):
        return {"@type": getattr(detail, "type_url", type(detail).__name__)}
    own_name = getattr(getattr(detail, "DESCRIPTOR", None), "full_name", "")
    return {"@type": f"type.googleapis.com/{own_name}", **body}
