"""Define buckets, objects and preconditions as values, and PATCH's merge."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from orchestrator.emulator.state.storage.refusals import StorageError, invalid, known

Fields = dict[str, Any]
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_LOCATION = re.compile(r"[A-Z][A-Z0-9-]*")
_MULTI_REGIONS = ("ASIA", "EU", "US")


@dataclass(frozen=True)
class Bucket:
    """
    One bucket; *fields* are those that a client may set (labels, lifecycle, softDeletePolicy, ...).

    *policies* are the former ones, each with the time `since` which it was set; the newest last.
    """

    name: str
    project: str
    location: str
    created: float
    updated: float
    generation: int
    metageneration: int = 1
    fields: Fields = field(default_factory=dict)
    policy: Fields = field(default_factory=dict)
    policy_version: int = 1
    policy_since: float = 0.0
    policies: list[Fields] = field(default_factory=list)

    def as_record(self) -> Fields:
        return {**vars(self)}


@dataclass(frozen=True)
class StoredObject:
    """
    One live object; *fields* are those that a client may set (contentType, metadata, ...).

    *md5* is None for a composed object; *blob* names its bytes in the backend; times are in seconds.
    """

    bucket: str
    name: str
    generation: int
    size: int
    crc32c: str
    md5: str | None
    blob: str
    created: float
    updated: float
    metageneration: int = 1
    components: int | None = None
    fields: Fields = field(default_factory=dict)

    def as_record(self) -> Fields:
        return {**vars(self)}


def etag(*numbers: int) -> str:
    return base64.b64encode("/".join(map(str, numbers)).encode()).decode()


def rfc3339(seconds: float) -> str:
    """Return a time in the API's form, UTC with milliseconds."""
    text = datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def without_nulls(body: Mapping[str, Any]) -> Fields:
    """Remove explicit nulls, which clients send for "not given"."""
    return {k: without_nulls(v) if isinstance(v, dict) else v for k, v in body.items() if v is not None}


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Fields:
    """Apply a JSON merge patch (RFC 7386): null deletes, objects merge, all else replaces."""
    new = {key: value for key, value in old.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            base = old.get(key)
            new[key] = merged(base if isinstance(base, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new


@dataclass(frozen=True)
class Preconditions:
    """A request's preconditions; None means "not given", generation 0 means "must not exist"."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None

    def check_write(self, generation: int, metageneration: int) -> None:
        """Raise 412 if a condition fails; both numbers are 0 for an object that does not exist."""
        if not self._holds(generation, metageneration) or not self._changed(generation, metageneration):
            raise known("precondition")

    def check_read(self, generation: int, metageneration: int) -> None:
        """Raise 412 if a match fails, 304 if the object has not changed."""
        if not self._holds(generation, metageneration):
            raise known("precondition")
        if not self._changed(generation, metageneration):
            raise StorageError(304, "notModified", "")

    def _holds(self, generation: int, metageneration: int) -> bool:
        return self.generation in (None, generation) and self.metageneration in (None, metageneration)

    def _changed(self, generation: int, metageneration: int) -> bool:
        return self.generation_not != generation and self.metageneration_not != metageneration


def check_bucket_name(name: object) -> str:
    """
    Return the name. Raise 400 unless it has 3-63 of [a-z0-9._-] and no "goog" prefix or "google".

    The rules are from memory of the public documentation (docs/facts.md 3.2).
    """
    if not isinstance(name, str) or not name:
        raise StorageError(400, "required", "Required parameter: name")
    if not _BUCKET.fullmatch(name) or name.startswith("goog") or "google" in name:
        raise invalid(f"Invalid bucket name: '{name}'")
    return name


def check_object_name(name: object) -> str:
    """Return the name. Raise 400 unless it has 1-1024 bytes of UTF-8 and no line break."""
    if not isinstance(name, str) or not name:
        raise StorageError(400, "required", "Required parameter: name")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise invalid("Disallowed unicode characters present in object name.") from None
    if size > 1024 or name in (".", "..") or "\n" in name or "\r" in name:
        raise invalid(f"Invalid object name: {name[:80]!r}")
    return name


def check_location(location: object) -> str:
    """Return the location in upper case, by default US. Raise 400 if it cannot be one."""
    text = str(location or "US").upper()
    if not _LOCATION.fullmatch(text):
        raise invalid(f"The specified location constraint is not valid: {text}")
    return text


def location_type(location: str) -> str:
    """Return `region`, `dual-region` or `multi-region`."""
    if location in _MULTI_REGIONS:
        return "multi-region"
    return "region" if "-" in location else "dual-region"
