"""Which names and locations Cloud Storage accepts."""

import re

from orchestrator.emulator.state.storage.errors import StorageError, invalid

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_LOCATION = re.compile(r"[A-Z][A-Z0-9-]*")
_MULTI_REGIONS = ("ASIA", "EU", "US")


def check_bucket_name(name: object) -> str:
    """
    Return the name; raise 400 unless it has 3-63 of [a-z0-9._-] and no "goog" prefix or "google".

    The rules are from memory of the public documentation (docs/facts.md 3.2).
    """
    if not isinstance(name, str) or not name:
        raise StorageError(400, "required", "Required parameter: name")
    if not _BUCKET.fullmatch(name) or name.startswith("goog") or "google" in name:
        raise invalid(f"Invalid bucket name: '{name}'")
    return name


def check_object_name(name: object) -> str:
    """Return the name; raise 400 unless it has 1-1024 bytes of UTF-8 and no line break."""
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
    """Return the location in upper case, US when none is given; raise 400 when it cannot be one."""
    text = str(location or "US").upper()
    if not _LOCATION.fullmatch(text):
        raise invalid(f"The specified location constraint is not valid: {text}")
    return text


def location_type(location: str) -> str:
    """Return `region`, `dual-region` or `multi-region`."""
    if location in _MULTI_REGIONS:
        return "multi-region"
    return "region" if "-" in location else "dual-region"
