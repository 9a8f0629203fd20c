"""Answer media, multipart and resumable uploads."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.emulator.http.batch import parts
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_access import Accounts, StorageAccess, nobody
from orchestrator.emulator.http.storage_shapes import base_of, body_of, object_json, preconditions
from orchestrator.emulator.state.storage.refusals import StorageError, invalid
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions, StoredObject, check_object_name

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_HASH_FIELDS = {"crc32c": "crc32c", "md5": "md5Hash"}


class UploadRequests:
    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage = storage
        self._access = StorageAccess(storage, accounts)
        self._uploads = storage.uploads

    def insert(self, request: Request, bucket: str) -> Response:
        """
        Store a small object at once, or start a session for a large one.

        A POST to a session's URL is a chunk, as gcsfs sends it; other clients use PUT.
        """
        if "upload_id" in request.query:
            return self.chunk(request, bucket)
        kind = request.query.get("uploadType", "")
        if kind == "resumable":
            return self._start(request, bucket)
        if kind == "media":
            body: dict[str, Any] = {"contentType": request.headers.get("content-type")}
            return self._store(request, bucket, body, request.pieces)
        if kind == "multipart":
            return self._multipart(request, bucket)
        with self._storage.lock:
            self._storage.buckets.get(bucket, "storage.objects.create")
        raise invalid(f"Invalid value for uploadType: {kind}")

    def chunk(self, request: Request, bucket: str) -> Response:
        """Store a chunk and return the progress, or finish the upload."""
        session = request.query.get("upload_id", "")
        with self._uploads.busy(session):
            with self._storage.lock:
                self._storage.buckets.get(bucket, "storage.objects.create")
                made = self._uploads.finished(session)
            if made is not None:
                return Response.of(object_json(made, base_of(request)))
            start, total = _content_range(request)
            if start is not None:
                self._uploads.append(session, start, *request.pieces)
            # The client continues where our bytes end; after a lost connection that is less than it has sent.
            held = self._uploads.received(session)
            if total is None or held < total:
                return _incomplete(request, {"range": f"bytes=0-{held - 1}"} if held else {})
            with self._storage.lock:
                made = self._uploads.finish(session, total, _hashes(request.headers))
        return Response.of(object_json(made, base_of(request)))

    def cancel(self, request: Request, **_values: str) -> Response:
        session = request.query.get("upload_id", "")
        with self._uploads.busy(session), self._storage.lock:
            self._uploads.cancel(session)
        return Response(499)

    def _start(self, request: Request, bucket: str) -> Response:
        body = body_of(request.body)
        if "x-upload-content-type" in request.headers:
            body = {"contentType": request.headers["x-upload-content-type"], **body}
        name = check_object_name(request.query.get("name") or body.get("name"))
        with self._storage.lock:
            self._access.admit_write(request, bucket, name)
            session = self._uploads.start(bucket, name, body, preconditions(request.query))
        base = base_of(request) or "http://localhost"
        url = f"{base}{request.path}?uploadType=resumable&upload_id={session.id}"
        return Response(200, b"", {"location": url, "x-guploader-uploadid": session.id})

    def _multipart(self, request: Request, bucket: str) -> Response:
        found = parts(request.headers.get("content-type", ""), request.body)
        if len(found) != 2:
            raise invalid(f"A multipart upload has 2 parts, this one has {len(found)}.")
        (_, metadata), (headers, data) = found
        body = {"contentType": headers.get("content-type"), **_without_null(body_of(metadata))}
        return self._store(request, bucket, body, (data,))

    def _store(
        self, request: Request, bucket: str, body: Mapping[str, Any], data: Sequence[bytes]
    ) -> Response:
        wanted = {**body, **_hashes(request.headers)}
        name, asked = request.query.get("name") or body.get("name"), preconditions(request.query)
        return Response.of(
            object_json(
                stored(self._storage, self._access, request, bucket, name, data, wanted, asked),
                base_of(request),
            )
        )


def stored(
    storage: Storage,
    access: StorageAccess,
    request: Request,
    bucket: str,
    name: object,
    data: Sequence[bytes],
    body: Mapping[str, Any],
    asked: Preconditions,
) -> StoredObject:
    """Store an object; its bytes are written and hashed without holding the storage's lock."""
    with storage.lock:
        access.admit_write(request, bucket, "" if name is None else str(name))
        known = check_object_name(name)
        storage.objects.check_write(bucket, known, asked)
    blob = storage.objects.stage(*data)
    with storage.lock:
        try:
            # Checked again, because bucket and policy may have changed while the bytes were written.
            access.admit_write(request, bucket, known)
        except StorageError:
            storage.objects.discard(blob)
            raise
        return storage.objects.put_blob(bucket, known, blob, body, asked)


def _incomplete(request: Request, headers: dict[str, str]) -> Response:
    """Ask for more; Go clients get no 308, which their HTTP library would follow as a redirect."""
    if request.headers.get("x-guploader-no-308") == "yes":
        return Response(200, b"", {**headers, "x-http-status-code-override": "308"})
    return Response(308, b"", headers)


def _without_null(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


def _content_range(request: Request) -> tuple[int | None, int | None]:
    """
    Return (first byte of the body, None for a query; total size, None if unknown).

    Without a Content-Range the body is the whole object.
    """
    text = request.headers.get("content-range")
    if text is None:
        return 0, request.length
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None:
        raise invalid(f"Invalid Content-Range: {text}")
    first, last, total = match.groups()
    if first is not None and int(last) - int(first) + 1 != request.length:
        raise invalid(f"Content-Range {text} does not fit a body of {request.length} bytes.")
    return None if first is None else int(first), None if total == "*" else int(total)


def _hashes(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the checksums of an X-Goog-Hash header under their names in the object resource."""
    pairs = (part.strip().partition("=") for part in headers.get("x-goog-hash", "").split(","))
    return {_HASH_FIELDS[kind]: value for kind, _, value in pairs if kind in _HASH_FIELDS}
