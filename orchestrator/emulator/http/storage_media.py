"""Downloads: whole objects and byte ranges, with the headers that clients check."""

import gzip
import re
import zlib
from email.utils import formatdate

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.storage.objects import Objects
from orchestrator.emulator.state.storage.values import StoredObject, etag

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def download(objects: Objects, held: StoredObject, request: Request) -> Response:
    """
    Answer 200 with everything, 206 with the range that is asked for, or 416 when it lies outside.

    Several ranges, and a range that is no range, get the whole object. Stored gzip is unpacked for a client
    that does not accept it (cloud.google.com/storage/docs/transcoding); ranges are ignored then.
    """
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    headers = _headers(held)
    if _unpacked(held, request):
        try:
            data = gzip.decompress(objects.read(held))
        except (OSError, EOFError, zlib.error):
            data = objects.read(held)  # its owner called it gzip, and it is none
        del headers["content-encoding"]
        return Response(200, data, {**headers, "x-guploader-response-body-transformations": "gunzipped"})
    if match is None or match.groups() == ("", ""):
        return Response(200, objects.read(held), headers)
    start, end = _bounds(match[1], match[2], held.size)
    if start >= end:
        return Response(416, b"", {**headers, "content-range": f"bytes */{held.size}"})
    shown = f"bytes {start}-{end - 1}/{held.size}"
    return Response(206, objects.read(held, start, end), {**headers, "content-range": shown})


def _unpacked(held: StoredObject, request: Request) -> bool:
    """Tell whether an object is to be unpacked for this client."""
    fixed = "no-transform" in str(held.fields.get("cacheControl", ""))
    accepts = "gzip" in request.headers.get("accept-encoding", "").lower()
    return held.fields.get("contentEncoding") == "gzip" and not accepts and not fixed


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return start and end (exclusive) of `first-last`, `first-` or the suffix `-length`."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _headers(held: StoredObject) -> dict[str, str]:
    sums = f"crc32c={held.crc32c}" + (f",md5={held.md5}" if held.md5 else "")
    encoding = held.fields.get("contentEncoding")
    headers = {
        "content-type": held.fields.get("contentType", "application/octet-stream"),
        "accept-ranges": "bytes",
        "etag": etag(held.generation, held.metageneration),
        "last-modified": formatdate(held.updated, usegmt=True),
        "x-goog-hash": sums,
        "x-goog-generation": str(held.generation),
        "x-goog-metageneration": str(held.metageneration),
        "x-goog-stored-content-length": str(held.size),
        "x-goog-stored-content-encoding": encoding or "identity",
        "x-goog-storage-class": held.fields.get("storageClass", "STANDARD"),
    }
    if encoding:
        headers["content-encoding"] = encoding
    return headers
