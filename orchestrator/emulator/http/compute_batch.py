"""Batches: several requests in one multipart/mixed body, as gcloud sends them."""

import uuid
from collections.abc import Callable
from email import message_from_bytes
from email.message import Message
from http import HTTPStatus

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.errors import ApiError


def answer_batch(request: Request, answer: Callable[[Request], Response]) -> Response:
    """Answer each part by *answer*, in order; errors: ApiError 400 when the body is no batch."""
    content_type = request.headers.get("content-type", "")
    whole = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + request.body)
    if not whole.is_multipart():
        raise ApiError(400, "badRequest", "The batch request is not multipart/mixed.")
    boundary = f"batch_{uuid.uuid4().hex}"
    parts = [_part(part, answer) for part in whole.get_payload() if isinstance(part, Message)]
    body = b"".join(f"--{boundary}\r\n".encode() + part + b"\r\n" for part in parts)
    head = {"content-type": f"multipart/mixed; boundary={boundary}"}
    return Response(200, body + f"--{boundary}--\r\n".encode(), head)


def _part(part: Message, answer: Callable[[Request], Response]) -> bytes:
    reply = answer(_inner(part))
    content_id = str(part.get("Content-ID", "<0>"))
    answered = content_id.replace("<", "<response-", 1)
    head = f"Content-Type: application/http\r\nContent-ID: {answered}\r\n\r\n"
    status = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
    fields = {**reply.headers, "content-length": str(len(reply.body))}
    lines = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return (head + status + lines + "\r\n").encode() + reply.body


def _inner(part: Message) -> Request:
    payload = part.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else b""
    start, _, rest = raw.replace(b"\r\n", b"\n").partition(b"\n")
    words = start.decode("latin-1").split()
    if len(words) < 2:
        raise ApiError(400, "badRequest", "A part of the batch has no request line.")
    head, _, body = rest.partition(b"\n\n")
    pairs = (line.partition(":") for line in head.decode("latin-1").splitlines())
    headers = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
    target = words[1]
    if target.startswith("http"):
        target = "/" + target.split("/", 3)[3]
    return Request.parse(words[0], target, headers, body.strip())
