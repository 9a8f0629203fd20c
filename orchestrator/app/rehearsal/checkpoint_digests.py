"""Fingerprint the checkpoints in the bucket, so that a rehearsal can compare two runs byte by byte."""

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.advice.rehearsal.same_bytes import Digests, FileDigest
from orchestrator.contract.bucket.object_names import CHECKPOINTS
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.ports import Store

ARCHIVES = (".npz", ".pt", ".pth", ".pth.tar", ".keras", ".ckpt", ".zip", ".bin", ".pkl")
NEWEST = 3
"""Number of the newest checkpoints to read; two runs can be compared if they have one step in common."""


def read_digests(store: Store, checkpoints: Sequence[BucketCheckpoint]) -> dict[int, Digests]:
    """Return the digests of the newest complete checkpoints, by step. Raise TpuctlError."""
    complete = [one for one in checkpoints if one.complete]
    newest: dict[int, BucketCheckpoint] = {}
    for one in complete:
        newest.setdefault(one.step, one)
    return {step: _digests(store, one) for step, one in list(newest.items())[:NEWEST]}


def _digests(store: Store, checkpoint: BucketCheckpoint) -> Digests:
    return {
        _relative(name, checkpoint): found
        for name, sha256 in checkpoint.objects
        if (found := _digest(store, name, sha256)) is not None
    }


def _relative(name: str, checkpoint: BucketCheckpoint) -> str:
    """Return a file's name without its incarnation, which differs between two runs."""
    parts = name[len(CHECKPOINTS) :].split("/")
    return "/".join(parts if checkpoint.incarnation is None else parts[2:])


def _digest(store: Store, name: str, sha256: str) -> FileDigest | None:
    if not name.endswith(ARCHIVES):
        # Trust the recorded sha256 to save the download; `checkpoints --verify` compares it with the bytes.
        known = sha256 or store.sha256(name)
        return FileDigest(known) if known else None
    with tempfile.TemporaryDirectory(prefix="tpuctl-digests-") as folder:
        path = Path(folder) / "archive"
        found = store.download(name, path)
        return None if found is None else FileDigest(found, _members(path))


def _members(path: Path) -> dict[str, int] | None:
    """
    Return the CRC-32 of each member of a zip archive, None if *path* is no zip archive.

    The archive's top folder is left out of the names, because PyTorch names it after the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename.partition("/")[2] or info.filename: info.CRC for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError):
        return None
