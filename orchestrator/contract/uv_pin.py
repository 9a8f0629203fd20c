"""Pin the release of uv, which creates Python environments on machines: `up` uploads it, the agent verifies it."""

from typing import Dict

VERSION = "0.13.9"
PROGRAMS: Dict[str, str] = {
    "x86_64": "b73acdf73b96c3ac9e56d2fa933427b3ee6a901e3cce6ba1e3ecb3f91ca0d86a",
    "aarch64": "bbecb5ac518030bb5e84f1999c577228460192832ac24a92bd772735682979f4",
}
"""The sha256 of the program `uv` in the wheels of PyPI's package uv of that version, by processor architecture."""


def object_name(digest: str) -> str:
    """Return the object name of the program with this sha256, compressed by gzip."""
    return f"bundles/uv-{digest}.gz"
