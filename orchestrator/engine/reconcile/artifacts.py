"""Find the bundle and the agent that were pushed: on this computer, else in the bucket."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.contract.bucket.object_names import BUNDLES
from orchestrator.contract.uv_pin import PROGRAMS, object_name
from orchestrator.domain.ports import Store
from orchestrator.domain.record import Record
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import NotFoundError, TpuctlError

DIGEST = re.compile("[0-9a-f]{64}")
MAX_CODE = 4 << 30
"""Largest bundle in bytes."""


@dataclass(frozen=True)
class Artifacts:
    """The files of one push: the code bundle and the agent."""

    bundle: Path
    agent: Path


def bundle_file(folder: Path, digest: str) -> Path:
    """Return the path for the bundle with this sha256."""
    return folder / f"{checked_digest(digest)}.tar.gz"


def agent_file(folder: Path, digest: str) -> Path:
    """Return the path for the agent with this sha256."""
    return folder / f"agent-{checked_digest(digest)}.pyz"


def checked_digest(digest: str) -> str:
    """Return *digest* if it is a sha256 in hex; raise TpuctlError otherwise, because it becomes part of a path."""
    if not DIGEST.fullmatch(digest):
        raise TpuctlError(
            cut(f"the record names code by {digest!r}, which is not a sha256", 200),
            hint="run `tpuctl up` from the folder that holds tpuctl.yaml",
            changed="nothing was pushed",
        )
    return digest


def is_whole(path: Path, digest: str) -> bool:
    """Return whether *path* is a plain file with this sha256."""
    # A link could lead to any file of this user, which would then be sent to the machines.
    if path.is_symlink() or not path.is_file():
        return False
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest() == digest


def upload(artifacts: Artifacts, folder: Path, store: Store) -> None:
    """Upload agent and bundle to the bucket, and the pinned uv archive if *folder* has it."""
    for path in (artifacts.agent, artifacts.bundle):
        store.upload(f"{BUNDLES}{path.name}", path)
    for digest in PROGRAMS.values():
        name = object_name(digest)
        path = folder / Path(name).name
        # The archive has 17 MB, so it is uploaded once only.
        if path.exists() and not store.list(name):
            store.upload(name, path)


def find_artifacts(record: Record, folder: Path, store: Store) -> Artifacts:
    """
    Return the record's bundle and agent, downloaded from the bucket if this computer lacks them.

    Raise NotFoundError if the bucket lacks them too.
    """
    bundle, agent = bundle_file(folder, record.job.bundle), agent_file(folder, record.job.agent)
    for path, digest in ((bundle, record.job.bundle), (agent, record.job.agent)):
        # Check before sending: a damaged or replaced file must not reach the machines.
        if not is_whole(path, digest):
            write_private(path, _fetch(store, f"{BUNDLES}{path.name}", digest))
    return Artifacts(bundle, agent)


def _fetch(store: Store, name: str, digest: str) -> bytes:
    stored = store.read(name, limit=MAX_CODE)
    if stored is None:
        raise NotFoundError(
            f"the code {digest[:12]} is neither on this computer nor in the bucket",
            hint="run `tpuctl up` from the folder that holds tpuctl.yaml",
            changed="nothing was pushed",
        )
    # Machines can write to the bucket, so only the digest proves that the file is the one we pushed.
    if hashlib.sha256(stored.data).hexdigest() != digest:
        raise TpuctlError(
            f"{name} in the bucket is damaged", hint="run: tpuctl up", changed="nothing was pushed"
        )
    return stored.data
