"""Convert buckets, objects and errors to JSON, and parse query parameters."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any
from urllib.parse import quote

from orchestrator.emulator.http.router import Handler, Request, Response
from orchestrator.emulator.state.storage.listing import PAGE_LIMIT, Query
from orchestrator.emulator.state.storage.refusals import StorageError, invalid, known
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import (
    Bucket,
    Preconditions,
    StoredObject,
    etag,
    location_type,
    rfc3339,
)

_OWN_LOCK = ("storage.objects.insert", "storage.batch")
_KEYS = ("x-goog-encryption-", "x-goog-copy-source-encryption-")


def answering(
    method: str,
    storage: Storage,
    handler: Handler,
    refused: Callable[[Request, StorageError, Mapping[str, str]], Response],
) -> Handler:
    """
    Wrap a handler as *method*, under the storage's lock; *refused* formats the model's errors.

    Uploads and batches take the lock themselves, so as not to hold it while they transfer bytes or answer
    others.
    """
    lock = nullcontext() if method in _OWN_LOCK else storage.lock

    def answer(request: Request, **values: str) -> Response:
        try:
            check_encryption(request)
            with lock:
                return handler(request, **values)
        except StorageError as error:
            return refused(request, error, values)

    answer.__name__ = method
    return answer


def bucket_json(bucket: Bucket) -> dict[str, Any]:
    """Return the bucket resource; 64-bit numbers are strings."""
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "name": bucket.name,
        "location": bucket.location,
        "locationType": location_type(bucket.location),
        "timeCreated": rfc3339(bucket.created),
        "updated": rfc3339(bucket.updated),
        "generation": str(bucket.generation),
        "metageneration": str(bucket.metageneration),
        "etag": etag(bucket.generation, bucket.metageneration),
        **bucket.fields,
    }


def object_json(held: StoredObject, base: str) -> dict[str, Any]:
    """
    Return the object resource; 64-bit numbers are strings, and a composed object has no md5Hash.

    *base* is the URL that the client used: gcloud's sliced downloads follow mediaLink. Without it there is no
    mediaLink.
    """
    resource = {
        "kind": "storage#object",
        "id": f"{held.bucket}/{held.name}/{held.generation}",
        "name": held.name,
        "bucket": held.bucket,
        "generation": str(held.generation),
        "metageneration": str(held.metageneration),
        "storageClass": "STANDARD",
        "size": str(held.size),
        "crc32c": held.crc32c,
        "etag": etag(held.generation, held.metageneration),
        "timeCreated": rfc3339(held.created),
        "updated": rfc3339(held.updated),
        **held.fields,
    }
    if base:
        path = f"/download/storage/v1/b/{held.bucket}/o/{quote(held.name, safe='')}"
        resource["mediaLink"] = f"{base}{path}?generation={held.generation}&alt=media"
    if held.md5 is not None:
        resource["md5Hash"] = held.md5
    if held.components is not None:
        resource["componentCount"] = held.components
    return resource


def base_of(request: Request) -> str:
    """
    Return the base URL that the client used, "" if it does not say.

    Google's own names are reached through a TLS tunnel only.
    """
    host = request.headers.get("host", "")
    scheme = "https" if host.endswith(".googleapis.com") else "http"
    return f"{scheme}://{host}" if host else ""


def body_of(content: bytes) -> dict[str, Any]:
    """Return a JSON object, {} for b"". Raise 400 for anything else."""
    try:
        value = json.loads(content) if content else {}
        value = {} if value is None else value  # Go clients send this for "no body"
    except (ValueError, RecursionError) as error:
        raise StorageError(400, "parseError", f"Parse Error: {error}") from None
    if not isinstance(value, dict):
        raise invalid("The body must be a JSON object.")
    return value


def number(query: Mapping[str, str], key: str) -> int | None:
    """Return an integer parameter, or None if it is absent; raise 400 if it is not an integer."""
    if key not in query:
        return None
    try:
        return int(query[key])
    except ValueError:
        raise invalid(f"Invalid value for {key}: {query[key]}") from None


def boolean(query: Mapping[str, str], key: str) -> bool:
    """Return a boolean parameter, False when it is absent; Google's Python client writes True and False."""
    value = query.get(key, "false").lower()
    if value not in ("true", "false"):
        raise invalid(f"Invalid value for {key}: {query[key]}")
    return value == "true"


def preconditions(query: Mapping[str, str], of: str = "") -> Preconditions:
    """Return the conditions of a request; *of* is `Source` for those on the source of a copy."""
    return Preconditions(
        number(query, f"if{of}GenerationMatch"),
        number(query, f"if{of}GenerationNotMatch"),
        number(query, f"if{of}MetagenerationMatch"),
        number(query, f"if{of}MetagenerationNotMatch"),
    )


def check_etags(headers: Mapping[str, str], tag: str) -> None:
    """Raise 412 if If-Match does not match, 304 if If-None-Match does."""
    wanted, known_tags = (_tags(headers.get(name, "")) for name in ("if-match", "if-none-match"))
    if wanted and not wanted & {tag, "*"}:
        raise known("precondition")
    if known_tags & {tag, "*"}:
        raise StorageError(304, "notModified", "")


def _tags(text: str) -> set[str]:
    return {tag.strip().strip('"') for tag in text.split(",") if tag.strip()}


def check_encryption(request: Request) -> None:
    """Raise 400 for customer-supplied keys: ignoring them would store the data unencrypted."""
    named_keys = [name for name in request.headers if name.startswith(_KEYS)]
    if named_keys or request.query.get("kmsKeyName"):
        raise invalid("The local cloud does not implement customer-supplied or customer-managed keys.")


def list_query(query: Mapping[str, str]) -> Query:
    limit = number(query, "maxResults")
    if limit is not None and limit < 0:
        raise invalid(f"Invalid value for maxResults: {limit}")
    return Query(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        start_offset=query.get("startOffset", ""),
        end_offset=query.get("endOffset", ""),
        include_trailing_delimiter=boolean(query, "includeTrailingDelimiter"),
        max_results=limit or PAGE_LIMIT,
        page_token=query.get("pageToken", ""),
        match_glob=query.get("matchGlob", ""),
    )
