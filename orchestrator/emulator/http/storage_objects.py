"""Answer calls on objects, except uploads."""

import gzip
import re
import zlib
from dataclasses import replace
from email.utils import formatdate

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_access import Accounts, StorageAccess, nobody
from orchestrator.emulator.http.storage_shapes import (
    base_of,
    body_of,
    boolean,
    check_etags,
    list_query,
    number,
    object_json,
    preconditions,
)
from orchestrator.emulator.state.storage.objects import Objects, Source
from orchestrator.emulator.state.storage.refusals import invalid
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions, StoredObject, etag, without_nulls

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class ObjectRequests:
    """Answers each object method of the JSON API, and the read of the XML API."""

    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._objects = storage.objects
        self._access = StorageAccess(storage, accounts)

    def list(self, request: Request, bucket: str) -> Response:
        """Return one page of objects and prefixes; soft-deleted objects are not kept."""
        self._access.admit(request, bucket, "storage.objects.list")
        answer: dict[str, object] = {"kind": "storage#objects"}
        if boolean(request.query, "softDeleted"):
            return Response.of(answer)
        found, page = self._objects.page(bucket, list_query(request.query))
        if found:
            answer["items"] = [object_json(held, base_of(request)) for held in found]
        if page.prefixes:
            answer["prefixes"] = list(page.prefixes)
        if page.next_token:
            answer["nextPageToken"] = page.next_token
        return Response.of(answer)

    def get(self, request: Request, bucket: str, name: str) -> Response:
        if request.query.get("alt") == "media":
            return self.media(request, bucket, name)
        return _shown(request, self._readable(request, bucket, name))

    def media(self, request: Request, bucket: str, name: str) -> Response:
        return download(self._objects, self._readable(request, bucket, name), request)

    def _readable(self, request: Request, bucket: str, name: str) -> StoredObject:
        """Return the object to read. Raise what refuses the caller."""
        self._access.admit(request, bucket, "storage.objects.get", name)
        held = self._objects.get(bucket, name, number(request.query, "generation"))
        preconditions(request.query).check_read(held.generation, held.metageneration)
        check_etags(request.headers, etag(held.generation, held.metageneration))
        return held

    def patch(self, request: Request, bucket: str, name: str) -> Response:
        self._access.admit(request, bucket, "storage.objects.update", name)
        self._objects.get(bucket, name, number(request.query, "generation"))
        asked = preconditions(request.query)
        return _shown(request, self._objects.patch(bucket, name, body_of(request.body), asked))

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        self._access.admit(request, bucket, "storage.objects.delete", name)
        generation = number(request.query, "generation")
        self._objects.delete(bucket, name, generation, preconditions(request.query))
        return Response(204)

    def compose(self, request: Request, bucket: str, name: str) -> Response:
        self._access.admit_write(request, bucket, name)
        body = without_nulls(body_of(request.body))
        parts = body.get("sourceObjects", [])
        if not isinstance(parts, list) or not isinstance(body.get("destination", {}), dict):
            raise invalid("sourceObjects must be a list, and destination an object.")
        sources = [_component(bucket, part) for part in parts]
        # Seen in google-cloud-storage 3.17.1; whether the sources' rate limit applies is not published.
        doomed = sources if body.get("deleteSourceObjects") is True else []
        for source in doomed:
            self._access.admit(request, bucket, "storage.objects.delete", source.name)
        asked = preconditions(request.query)
        made = self._objects.compose(sources, bucket, name, body.get("destination", {}), asked)
        for part in {one.name for one in doomed} - {name}:
            self._objects.delete(bucket, part, None, Preconditions(), at_once=True)
        return _shown(request, made)

    def copy(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        self._access.admit(request, bucket, "storage.objects.get", name)
        self._access.admit_write(request, to_bucket, to_name)
        generation = number(request.query, "sourceGeneration")
        source = Source(bucket, name, generation, preconditions(request.query, "Source"))
        asked = preconditions(request.query)
        return _shown(request, self._objects.copy(source, to_bucket, to_name, body_of(request.body), asked))

    def rewrite(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        """Copy an object in one call, whatever its size."""
        self.copy(request, bucket, name, to_bucket, to_name)
        made = self._objects.get(to_bucket, to_name)
        size, resource = str(made.size), object_json(made, base_of(request))
        done = {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": size,
            "objectSize": size,
            "done": True,
        }
        return Response.of({**done, "resource": resource})

    def move(self, request: Request, bucket: str, name: str, to_name: str) -> Response:
        """
        Rename an object within its bucket, for gcsfs; atomic for other callers.

        Unlike on the real service, a kill halfway may leave both names.
        """
        self._access.admit(request, bucket, "storage.objects.delete", name)
        answer = self.copy(request, bucket, name, bucket, to_name)
        if to_name != name:
            self._objects.delete(bucket, name, None, Preconditions())
        return answer


def _shown(request: Request, held: StoredObject) -> Response:
    return Response.of(object_json(held, base_of(request)))


def _component(bucket: str, part: object) -> Source:
    """Parse one source of a composition; an explicit null generation means the newest."""
    if not isinstance(part, dict):
        raise invalid("Each of sourceObjects must be an object with a name.")
    match = part.get("objectPreconditions") or {}
    if not isinstance(match, dict):
        raise invalid("objectPreconditions must be an object.")
    asked = Preconditions(_integer(match.get("ifGenerationMatch")))
    return Source(bucket, str(part.get("name", "")), _integer(part.get("generation")), asked)


def _integer(value: object) -> int | None:
    if value is None:
        return None
    if not str(value).isdecimal():
        raise invalid(f"Not a generation: {value}")
    return int(str(value))


def download(objects: Objects, held: StoredObject, request: Request) -> Response:
    """
    Answer 200 with everything, 206 with the requested range, or 416 if it is outside of the object.

    Several ranges, and an invalid range, get the whole object. Stored gzip is decompressed for a client that
    does not accept it (cloud.google.com/storage/docs/transcoding); ranges are then ignored.
    """
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    headers = _headers(held)
    if _unpacked(held, request):
        try:
            data = gzip.decompress(objects.read(held))
        except (OSError, EOFError, zlib.error):
            data = objects.read(held)  # declared as gzip by its owner, but it is not
        del headers["content-encoding"]
        return Response(200, data, {**headers, "x-guploader-response-body-transformations": "gunzipped"})
    if match is None or match.groups() == ("", ""):
        return _bytes(objects, held, 0, held.size, Response(200, b"", headers))
    start, end = _bounds(match[1], match[2], held.size)
    if start >= end:
        return Response(416, b"", {**headers, "content-range": f"bytes */{held.size}"})
    shown = f"bytes {start}-{end - 1}/{held.size}"
    return _bytes(objects, held, start, end, Response(206, b"", {**headers, "content-range": shown}))


def _bytes(objects: Objects, held: StoredObject, start: int, end: int, answer: Response) -> Response:
    """Return *answer* with bytes of an object; large ones are read while they are sent."""
    found = objects.open(held, start, end)
    if found is None:
        return replace(answer, body=objects.read(held, start, end))
    return replace(
        answer, source=found.pieces(), headers={**answer.headers, "content-length": str(found.size)}
    )


def _unpacked(held: StoredObject, request: Request) -> bool:
    """Return whether to decompress an object for this client."""
    fixed = "no-transform" in str(held.fields.get("cacheControl", ""))
    accepts = "gzip" in request.headers.get("accept-encoding", "").lower()
    return held.fields.get("contentEncoding") == "gzip" and not accepts and not fixed


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Parse `first-last`, `first-` or the suffix `-length`; return start and end (exclusive)."""
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
