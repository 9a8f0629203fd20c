"""Outputs of a job without steps that a machine had made before it was taken away: they come back."""

from __future__ import annotations

import errno
import shutil
from typing import Dict

from orchestrator.agent.local_checkpoints import RESTORING
from orchestrator.agent.parts import Parts
from orchestrator.agent.rescue import read_manifests
from orchestrator.agent.threads import say
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.formats.outputs import outputs_in
from orchestrator.contract.machine_errors import TornError
from orchestrator.contract.manifest import is_plain
from orchestrator.contract.unclaimed_manifest import Kept, Place, outputs_before

NO_PLACE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG)
"""What a folder says of a name that cannot be in it, however often it is tried."""


def bring_outputs_back(parts: Parts) -> None:
    """
    Fill an empty folder with what earlier machines of this very job had brought to the bucket in time.

    Raises AgentError or OSError. Bytes that are not as they were saved are left out: the job makes them anew.
    """
    folder = parts.local.folder
    folder.mkdir(parents=True, exist_ok=True)
    mine = parts.settings
    files: Dict[str, Kept] = {}
    if not outputs_in(folder):
        held = read_manifests(parts.bucket, mine.incarnation)
        job = (mine.bundle, mine.settings_digest, mine.workers)
        files = outputs_before(held, mine.worker, mine.incarnation, job)
    if not files:
        return
    temporary = folder / f"{RESTORING}outputs"
    shutil.rmtree(str(temporary), ignore_errors=True)
    temporary.mkdir()
    start, count = f"{Place.CHECKPOINTS.value}/", 0
    for kept in files.values():
        # Two slashes in a row would make the rest an absolute path, which `/` goes to.
        if not kept.name.startswith(start) or not is_plain(kept.name[len(start) :]):
            continue
        place, target = temporary / "file", folder / kept.name[len(start) :]
        try:
            parts.bucket.download(kept.object, place, kept.size)
        except TornError as error:
            say(f"{kept.name} does not come back: {error}")
            continue
        if place.stat().st_size != kept.size or sha256_of(place) != kept.sha256:
            say(f"{kept.name} does not come back: the bucket holds other bytes than were saved")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            place.replace(target)
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise
            say(f"{kept.name} does not come back: {error}")
            continue
        count += 1
    shutil.rmtree(str(temporary), ignore_errors=True)
    parts.log.line(f"--- {count} outputs of earlier machines are back ---")
