"""Install the user's code: download by sha256, unpack safely, switch by a rename."""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import List

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.layout import Layout
from orchestrator.contract.bucket.object_names import BUNDLES
from orchestrator.contract.machine_errors import DamagedError, TransientError


def fetch(layout: Layout, bucket: JobBucket, digest: str) -> None:
    """
    Make `current` point to the bundle *digest*; download it unless it is already unpacked.

    Raise TransientError while the bucket does not have the bundle, DamagedError if the archive has another
    sha256.
    """
    target = layout.bundles / digest
    if not target.is_dir():
        _fetch(layout.bundles, bucket, digest, target)
    switch(layout, digest)


def switch(layout: Layout, digest: str) -> None:
    """Point `current` to the bundle, atomically."""
    wanted = posixpath.join("bundle", digest)
    if layout.current.is_symlink() and os.readlink(str(layout.current)) == wanted:  # noqa: PTH115 (3.9)
        return
    # A symlink cannot be changed in place, so a new one is renamed over it. The process id keeps an agent
    # apart from `agent.pyz fetch`, which a push runs at the same time.
    temporary = layout.root / f".current-{os.getpid()}"
    if temporary.is_symlink():
        temporary.unlink()
    temporary.symlink_to(wanted)
    temporary.replace(layout.current)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar.gz below *target*. Raise DamagedError, with nothing written, if a member would leave it."""
    try:
        with tarfile.open(str(archive), "r:gz") as tar:
            # All names are checked before the first write, so that a refused bundle leaves nothing behind.
            members = tar.getmembers()
            _check(members)
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(str(target), members, filter="tar")
            else:
                tar.extractall(str(target), members)  # noqa: S202 (older Pythons; checked above)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedError(f"{archive.name} is not a complete tar.gz: {error}") from error


def _fetch(folder: Path, bucket: JobBucket, digest: str, target: Path) -> None:
    name = f"{BUNDLES}{digest}.tar.gz"
    held = bucket.stat(name)
    if held is None:
        raise TransientError(f"gs://{bucket.name}/{name} is not there yet")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".tmp-{digest}"
    # An agent that was killed may have left a part of the bundle here.
    shutil.rmtree(str(temporary), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=str(folder)) as place:
        archive = Path(place) / "bundle.tar.gz"
        if bucket.download(name, archive, int(held["size"])) != digest:
            raise DamagedError(f"gs://{bucket.name}/{name} has another sha256 than its name")
        # Unpacked beside its place and renamed, so that a folder with this name is always complete.
        temporary.mkdir()
        unpack(archive, temporary)
    try:
        temporary.rename(target)
    except OSError:
        # `up` may have installed the same bundle over SSH meanwhile; equal names mean equal contents.
        if not target.is_dir():
            raise
        shutil.rmtree(str(temporary), ignore_errors=True)


def _check(members: List[tarfile.TarInfo]) -> None:
    """Raise DamagedError for absolute names, `..`, devices, links that lead out, and members below a link."""
    links = {posixpath.normpath(one.name) for one in members if one.issym()}
    for member in members:
        name = posixpath.normpath(member.name)
        if _leads_out(member.name) or ".." in member.name.split("/"):
            raise DamagedError(f"the bundle holds {member.name!r}, which leads out of its folder")
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise DamagedError(f"the bundle holds {member.name!r}, which is neither file, folder nor link")
        parents = {posixpath.join(*name.split("/")[:count]) for count in range(1, name.count("/") + 1)}
        if parents & links:
            raise DamagedError(f"the bundle holds {member.name!r} below a link")
        base = posixpath.dirname(name) if member.issym() else ""
        if member.linkname and (member.issym() or member.islnk()) and _leads_out(member.linkname, base):
            raise DamagedError(
                f"the bundle holds {member.name!r}, a link to {member.linkname!r} out of its folder"
            )


def _leads_out(name: str, base: str = "") -> bool:
    path = posixpath.normpath(posixpath.join(base, name))
    return name.startswith("/") or path == ".." or path.startswith("../")
