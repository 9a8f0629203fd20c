"""Compute the checksums of files that manifests contain."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hex. Raise OSError."""
    return digest_of(path, "sha256")


def digest_of(path: Path, kind: str) -> str:
    """Return the digest of a file in hex; *kind* is a name that hashlib knows. Raise OSError."""
    digest = hashlib.new(kind)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
