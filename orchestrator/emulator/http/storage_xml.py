"""
Serve the XML API of Cloud Storage: objects by path, bucket listings, multipart uploads.

Rust's object_store and boto use it, and TensorFlow reads with it. Headers, elements and errors follow
cloud.google.com/storage/docs/xml-api/reference-methods.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from orchestrator.emulator.http.router import Handler, Request, Response, Router
from orchestrator.emulator.http.storage_access import Accounts, StorageAccess, nobody
from orchestrator.emulator.http.storage_objects import download
from orchestrator.emulator.http.storage_shapes import answering, check_etags, number
from orchestrator.emulator.http.storage_uploads import stored
from orchestrator.emulator.state.storage.listing import PAGE_LIMIT, Query
from orchestrator.emulator.state.storage.objects import Source
from orchestrator.emulator.state.storage.refusals import StorageError, invalid
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions, StoredObject, etag, rfc3339

SPACE = "http://doc.s3.amazonaws.com/2006-03-01"
UPLOADS = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Namespace that Google's client expects in the answer starting an upload (google-cloud-storage 3.17.1)."""
_CODES = {
    "notFound": "NoSuchKey",
    "conditionNotMet": "PreconditionFailed",
    "rateLimitExceeded": "SlowDown",
    "forbidden": "AccessDenied",
    "invalid": "InvalidArgument",
}
_CONDITIONS = ("generation", "metageneration")
_COPIED = {
    "content-type": "contentType",
    "cache-control": "cacheControl",
    "content-encoding": "contentEncoding",
}
_META = "x-goog-meta-"


def xml_routes(router: Router, storage: Storage, accounts: Accounts = nobody) -> None:
    """Register the XML API; call it last, since its patterns match most paths."""
    calls = XmlRequests(storage, accounts)
    table: list[tuple[str, str, str, Handler]] = [
        ("storage.objects.list", "GET", "/{bucket}", calls.list),
        ("storage.objects.list", "GET", "/{bucket}/", calls.list),
        ("storage.buckets.get", "HEAD", "/{bucket}", calls.bucket),
        ("storage.objects.get", "GET", "/{bucket}/{name:path}", calls.get),
        ("storage.objects.get", "HEAD", "/{bucket}/{name:path}", calls.head),
        ("storage.objects.insert", "PUT", "/{bucket}/{name:path}", calls.put),
        ("storage.objects.insert", "POST", "/{bucket}/{name:path}", calls.post),
        ("storage.objects.delete", "DELETE", "/{bucket}/{name:path}", calls.delete),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, answering(method, storage, handler, _refused))


def _refused(_: Request, error: StorageError, values: Mapping[str, str]) -> Response:
    if error.status == 304:
        return Response(304)
    code = _CODES.get(error.reason, error.reason)
    if code == "NoSuchKey" and "name" not in values:
        code = "NoSuchBucket"
    return _xml(f"<Error><Code>{code}</Code><Message>{escape(error.message)}</Message></Error>", error.status)


class XmlRequests:
    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage, self._objects = storage, storage.objects
        self._access = StorageAccess(storage, accounts)

    def bucket(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.objects.list")
        return Response(200)

    def list(self, request: Request, bucket: str) -> Response:
        """Return one page of objects, in version 1 or 2 of the listing."""
        self._access.admit(request, bucket, "storage.objects.list")
        query = request.query
        token = query.get("continuation-token", "")
        after = query.get("start-after", "") or query.get("marker", "")
        asked = Query(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            # Both versions continue after the given name.
            start_offset=f"{after}\0" if after else "",
            max_results=min(number(query, "max-keys") or PAGE_LIMIT, PAGE_LIMIT),
            page_token=token,
        )
        found, page = self._objects.page(bucket, asked)
        parts = [
            f"<Name>{escape(bucket)}</Name><Prefix>{escape(asked.prefix)}</Prefix>",
            f"<KeyCount>{len(found) + len(page.prefixes)}</KeyCount>",
            f"<IsTruncated>{str(bool(page.next_token)).lower()}</IsTruncated>",
            f"<NextContinuationToken>{page.next_token}</NextContinuationToken>" if page.next_token else "",
            *(_entry(held) for held in found),
            *(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in page.prefixes),
        ]
        return _xml(f"<ListBucketResult xmlns='{SPACE}'>{''.join(parts)}</ListBucketResult>")

    def get(self, request: Request, bucket: str, name: str) -> Response:
        held = self._held(request, bucket, name)
        answer = download(self._objects, held, request)
        return replace(answer, headers={**answer.headers, **_tags(held)})

    def head(self, request: Request, bucket: str, name: str) -> Response:
        """Return the headers of `get` without the object's bytes."""
        answer = self.get(request, bucket, name)
        return Response(answer.status, b"", {"content-length": str(len(answer.body)), **answer.headers})

    def put(self, request: Request, bucket: str, name: str) -> Response:
        """Store an object, a part of an upload, or a copy."""
        if "uploadId" in request.query:
            return self._part(request, bucket, name)
        asked = _asked(request)
        source = request.headers.get("x-goog-copy-source")
        if source is None:
            fields = _fields(request)
            made = stored(self._storage, self._access, request, bucket, name, request.pieces, fields, asked)
            return Response(200, b"", _tags(made))
        with self._storage.lock:
            self._access.admit_write(request, bucket, name)
            from_bucket, _, from_name = unquote(source).lstrip("/").partition("/")
            self._access.admit(request, from_bucket, "storage.objects.get", from_name)
            made = self._objects.copy(Source(from_bucket, from_name), bucket, name, _fields(request), asked)
        body = f"<ETag>{_tag(made)}</ETag><LastModified>{rfc3339(made.updated)}</LastModified>"
        return _xml(f"<CopyObjectResult>{body}</CopyObjectResult>", headers=_tags(made))

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        if "uploadId" in request.query:
            self._storage.uploads.cancel(request.query["uploadId"])
            return Response(204)
        self._access.admit(request, bucket, "storage.objects.delete", name)
        self._objects.delete(bucket, name, number(request.query, "generation"), _asked(request))
        return Response(204)

    def post(self, request: Request, bucket: str, name: str) -> Response:
        """Start a multipart upload, or assemble the object from its parts."""
        with self._storage.lock:
            self._access.admit_write(request, bucket, name)
        if "uploads" in request.query:
            with self._storage.lock:
                session = self._storage.uploads.start(bucket, name, _fields(request), _asked(request))
            named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key>"
            body = f"{named}<UploadId>{session.id}</UploadId>"
            return _xml(
                f"<InitiateMultipartUploadResult xmlns='{UPLOADS}'>{body}</InitiateMultipartUploadResult>"
            )
        if "uploadId" not in request.query:
            raise invalid("A POST begins or ends a multipart upload.")
        return self._complete(request, bucket, name)

    def _part(self, request: Request, bucket: str, name: str) -> Response:
        upload, part = request.query["uploadId"], number(request.query, "partNumber")
        if part is None or not 1 <= part <= 10000:
            raise invalid("partNumber must be 1 to 10000.")
        with self._storage.lock:
            self._access.admit_write(request, bucket, name)
        crc32c, md5 = self._storage.uploads.keep_part(upload, part, *request.pieces).shown()
        tag = f'"{base64.b64decode(md5).hex()}"'
        return Response(200, b"", {"etag": tag, "x-goog-hash": f"crc32c={crc32c},md5={md5}"})

    def _complete(self, request: Request, bucket: str, name: str) -> Response:
        upload, numbers = request.query["uploadId"], _numbers(request.body)
        with self._storage.uploads.busy(upload):
            with self._storage.lock:
                size = self._storage.uploads.join(upload, numbers)
            self._objects.sum_up(upload)
            with self._storage.lock:
                made = self._storage.uploads.finish(upload, size, {})
        named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key><ETag>{_tag(made)}</ETag>"
        return _xml(
            f"<CompleteMultipartUploadResult xmlns='{SPACE}'>{named}</CompleteMultipartUploadResult>",
            headers=_tags(made),
        )

    def _held(self, request: Request, bucket: str, name: str) -> StoredObject:
        self._access.admit(request, bucket, "storage.objects.get", name)
        held = self._objects.get(bucket, name, number(request.query, "generation"))
        _asked(request).check_read(held.generation, held.metageneration)
        check_etags(request.headers, _tag(held).strip('"'))
        return held


def _numbers(body: bytes) -> list[int]:
    """Return the part numbers of the object, in order. Raise 400."""
    if b"<!" in body:
        raise invalid("The list of parts must not declare anything.")
    try:
        root = ET.fromstring(body)  # noqa: S314 - without declarations there is nothing to expand
        found = [int(one.text or "") for one in root.iter() if one.tag.rpartition("}")[2] == "PartNumber"]
    except (ET.ParseError, ValueError):
        raise invalid("The list of parts cannot be read.") from None
    if not found or found != sorted(set(found)):
        raise StorageError(400, "InvalidPartOrder", "The parts must be in ascending order.")
    return found


def _entry(held: StoredObject) -> str:
    shown = {
        "Key": escape(held.name),
        "Generation": held.generation,
        "MetaGeneration": held.metageneration,
        "LastModified": rfc3339(held.updated),
        "ETag": escape(_tag(held)),
        "Size": held.size,
    }
    return "<Contents>" + "".join(f"<{key}>{value}</{key}>" for key, value in shown.items()) + "</Contents>"


def _tag(held: StoredObject) -> str:
    """Return the ETag of the XML API: the hexadecimal MD5, if there is one."""
    text = held.md5 or etag(held.generation, held.metageneration)
    return f'"{hashlib.md5(text.encode()).hexdigest()}"'  # noqa: S324 - a tag, no secret


def _tags(held: StoredObject) -> dict[str, str]:
    metadata = held.fields.get("metadata", {})
    sums = f"crc32c={held.crc32c}" + (f",md5={held.md5}" if held.md5 else "")
    return {
        "etag": _tag(held),
        "x-goog-generation": str(held.generation),
        "x-goog-metageneration": str(held.metageneration),
        "x-goog-hash": sums,
        **{f"{_META}{key}": str(value) for key, value in metadata.items()},
    }


def _fields(request: Request) -> dict[str, object]:
    """Return the object fields in a request's headers."""
    headers = request.headers
    fields: dict[str, object] = {_COPIED[key]: headers[key] for key in _COPIED if headers.get(key)}
    metadata = {key[len(_META) :]: value for key, value in headers.items() if key.startswith(_META)}
    if metadata:
        fields["metadata"] = metadata
    if headers.get("content-md5"):
        fields["md5Hash"] = headers["content-md5"]
    return fields


def _asked(request: Request) -> Preconditions:
    values = {f"x-goog-if-{one}-match": request.headers.get(f"x-goog-if-{one}-match") for one in _CONDITIONS}
    known = {key: value for key, value in values.items() if value is not None}
    generation, metageneration = (number(known, f"x-goog-if-{one}-match") for one in _CONDITIONS)
    return Preconditions(generation, None, metageneration, None)


def _xml(body: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = f"<?xml version='1.0' encoding='UTF-8'?>{body}"
    return Response(
        status, text.encode(), {"content-type": "application/xml; charset=UTF-8", **(headers or {})}
    )
