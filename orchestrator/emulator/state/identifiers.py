"""Format names, fingerprints and times as Google does."""

import base64
import hashlib
import json
import re
from datetime import datetime, timezone

_RFC1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def is_rfc1035(name: str) -> bool:
    """Return whether *name* is an RFC 1035 label of 1 to 63 characters."""
    return bool(_RFC1035.fullmatch(name))


def fingerprint(value: object) -> str:
    """Return a short hash of *value* (JSON-like) in base64, as in `labelFingerprint`."""
    text = json.dumps(value, sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def timestamp(seconds: float) -> str:
    """Return RFC 3339 in UTC with nanoseconds, as in the TPU API."""
    whole = datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{int((seconds % 1) * 1e9):09d}Z"


def compute_timestamp(seconds: float) -> str:
    """Return RFC 3339 in UTC with milliseconds, as in Compute Engine."""
    return timestamp(seconds)[:-7] + "+00:00"
