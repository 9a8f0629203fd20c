"""Names and fingerprints as Google writes them."""

import base64
import hashlib
import json
import re
from datetime import datetime, timezone

_RFC1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def is_rfc1035(name: str) -> bool:
    """Say whether *name* is a label of 1 to 63 characters as RFC 1035 has it."""
    return bool(_RFC1035.fullmatch(name))


def fingerprint(value: object) -> str:
    """Return a short hash of *value* (JSON-like) in base64, as `labelFingerprint` has it."""
    text = json.dumps(value, sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def timestamp(seconds: float) -> str:
    """Return RFC 3339 with nanoseconds in UTC, as the TPU API writes it."""
    whole = datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{int((seconds % 1) * 1e9):09d}Z"


def compute_timestamp(seconds: float) -> str:
    """Return RFC 3339 with milliseconds in UTC, as Compute Engine writes it."""
    return timestamp(seconds)[:-7] + "+00:00"
