"""Answer several requests in one multipart/mixed body, as gcloud sends them, with CRLF or LF."""

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.storage.refusals import invalid

_OURS = "batch_of_the_local_cloud"
MimePart = tuple[dict[str, str], bytes]
_BOUNDARY = re.compile(r"""boundary=["']?([^"';]+)["']?""")


def answer_batch(request: Request, dispatch: Callable[[Request], Response], most: int = 100) -> Response:
    """Answer every request of a batch in order; *most* is the API's limit. Raise 400 beyond it."""
    found = parts(request.headers.get("content-type", ""), request.body)
    if len(found) > most:
        raise invalid(f"The batch has {len(found)} requests; at most {most} are allowed.")
    text = b""
    for headers, content in found:
        name = headers.get("content-id", "<>").strip("<>")
        head = f"--{_OURS}\r\nContent-Type: application/http\r\nContent-ID: <response-{name}>\r\n\r\n"
        text += head.encode() + _as_http(dispatch(_inner(content, request))) + b"\r\n"
    closing = f"--{_OURS}--\r\n".encode()
    return Response(200, text + closing, {"content-type": f"multipart/mixed; boundary={_OURS}"})


def _inner(content: bytes, outer: Request) -> Request:
    """Parse one request, whose target may be a whole URL; peer and credentials are those of *outer*."""
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


def parts(content_type: str, body: bytes) -> list[MimePart]:
    """Return (lower-case headers, content) of each part. Raise 400 for a body without parts."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise invalid("A multipart body needs a boundary in its Content-Type.")
    found = [split_head(body[start:end]) for start, end in _spans(body, b"--" + match[1].encode())]
    if not found:
        raise invalid("The multipart body has no part.")
    return found


def _spans(body: bytes, mark: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of the text between two boundary lines, without line ends."""
    start: int | None = None
    at = body.find(mark)
    while at >= 0:
        line_end = body.find(b"\n", at)
        line = body[at + len(mark) : line_end if line_end >= 0 else len(body)].strip()
        position = at + len(mark)
        if line in (b"", b"--") and (at == 0 or body[at - 1 : at] == b"\n"):
            if start is not None:
                yield start, max(start, at - (2 if body[at - 2 : at] == b"\r\n" else 1))
            if line or line_end < 0:
                return
            start = position = line_end + 1
        at = body.find(mark, position)


def split_head(text: bytes) -> MimePart:
    """Split header lines from the content after the first empty line."""
    match = re.search(rb"(?:^|\r?\n)\r?\n", text)
    head, content = (text[: match.start()], text[match.end() :]) if match else (text, b"")
    lines = (line.partition(":") for line in head.decode("latin-1").splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, _, value in lines}, content
