"""Read multipart bodies as clients write them: with CRLF or with bare LF."""

import re
from collections.abc import Iterator

from orchestrator.emulator.state.storage.errors import invalid

Part = tuple[dict[str, str], bytes]
_BOUNDARY = re.compile(r"""boundary=["']?([^"';]+)["']?""")


def parts(content_type: str, body: bytes) -> list[Part]:
    """Return (headers in lower case, content) of each part; raise 400 for a body that has none."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise invalid("A multipart body needs a boundary in its Content-Type.")
    found = [split_head(body[start:end]) for start, end in _spans(body, b"--" + match[1].encode())]
    if not found:
        raise invalid("The multipart body has no part.")
    return found


def _spans(body: bytes, mark: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of what stands between two boundary lines, without their line ends."""
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


def split_head(text: bytes) -> Part:
    """Split header lines from the content behind the first empty line."""
    match = re.search(rb"(?:^|\r?\n)\r?\n", text)
    head, content = (text[: match.start()], text[match.end() :]) if match else (text, b"")
    lines = (line.partition(":") for line in head.decode("latin-1").splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, _, value in lines}, content
