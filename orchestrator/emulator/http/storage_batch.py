"""Batches: several requests in one multipart/mixed body."""

from collections.abc import Callable
from http import HTTPStatus

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_multipart import parts, split_head
from orchestrator.emulator.state.storage.errors import invalid

_LIMIT = 100  # requests in one batch
_BOUNDARY = "batch_of_the_local_cloud"


def answer_batch(request: Request, dispatch: Callable[[Request], Response]) -> Response:
    """Answer every request of a batch by itself, in order."""
    found = parts(request.headers.get("content-type", ""), request.body)
    if len(found) > _LIMIT:
        raise invalid(f"The batch has {len(found)} requests; at most {_LIMIT} are allowed.")
    text = b""
    for headers, content in found:
        name = headers.get("content-id", "<>").strip("<>")
        head = f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <response-{name}>\r\n\r\n"
        text += head.encode() + _as_http(dispatch(_inner(content, request))) + b"\r\n"
    closing = f"--{_BOUNDARY}--\r\n".encode()
    return Response(200, text + closing, {"content-type": f"multipart/mixed; boundary={_BOUNDARY}"})


def _inner(content: bytes, outer: Request) -> Request:
    """Parse one request, whose target may be a whole URL; it comes from who sent the *outer* one."""
    line, _, rest = content.lstrip().partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) < 2:
        raise invalid("A part of the batch is no HTTP request.")
    target = words[1]
    if "://" in target:
        target = "/" + target.partition("://")[2].partition("/")[2]
    headers, body = split_head(rest)
    if "authorization" in outer.headers:
        headers = {"authorization": outer.headers["authorization"], **headers}
    return Request.parse(words[0], target, headers, body, outer.peer)


def _as_http(response: Response) -> bytes:
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = {**response.headers, "content-length": str(len(response.body))}
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{key}: {value}" for key, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + response.body
