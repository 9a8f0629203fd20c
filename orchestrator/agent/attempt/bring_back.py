"""What a start waits for, side by side: the checkpoint comes back while the code comes and is set up."""

from __future__ import annotations

import errno
import shutil
from functools import partial
from typing import Dict, Optional, Tuple

from orchestrator.agent.attempt.bundle import fetch
from orchestrator.agent.attempt.rescue import read_manifests
from orchestrator.agent.checkpoints.local import RESTORING
from orchestrator.agent.checkpoints.restore import NOTHING, Restored
from orchestrator.agent.gang import Attempt
from orchestrator.agent.machine.venv import own_python
from orchestrator.agent.outcome import JobOutcome, JobVerdict
from orchestrator.agent.parts import Parts
from orchestrator.agent.threads import say
from orchestrator.contract.formats.outputs import outputs_in
from orchestrator.contract.machine_errors import AgentError, SliceSizeError, TornError, TransientError
from orchestrator.contract.manifest import is_plain
from orchestrator.contract.unclaimed_manifest import SavedPlace, UnclaimedFile, outputs_before


def fetch_code(parts: Parts) -> None:
    """Bring the bundle and switch to it. Raises OSError for whatever is in the way."""
    try:
        fetch(parts.settings.layout, parts.bucket, parts.settings.bundle)
    except AgentError as error:
        # A torn archive may be replaced by `up`, so it is waited out like an absent one.
        raise OSError(str(error)) from error
    parts.status.time("fetched", again=False)


def bring_image(parts: Parts) -> Optional[JobOutcome]:
    """Pull the image of `job.image`, if there is one; return how the attempt ends if that cannot be done."""
    if parts.container is None:
        return None
    parts.status.time("image_began")
    try:
        parts.patiently("read which image it is", parts.container.known)
        parts.container.bring()
    except TransientError as error:
        return JobOutcome(JobVerdict.EXCUSED, str(error))
    except (AgentError, OSError) as error:
        # What a machine has pulled before exists, and this account may read it: then it is the registry's fault.
        known = parts.patiently("read which image it is", parts.container.known)
        return JobOutcome(JobVerdict.EXCUSED if known else JobVerdict.FAILED, str(error))
    parts.status.time("image_ready")
    parts.status.set(image=parts.container.pinned)
    return None


def bring_python(parts: Parts) -> Optional[JobOutcome]:
    """Install the Python that `job.python` asks for; return how the attempt ends if that cannot be done."""
    try:
        own_python(parts.environ, parts.settings.layout, lambda: parts.bucket)
    except (AgentError, OSError) as error:
        return JobOutcome(JobVerdict.FAILED, str(error))
    return None


def bring_checkpoint(parts: Parts, attempt: Attempt) -> Tuple[Restored, Optional[JobOutcome]]:
    """
    Bring the checkpoint of an attempt to this disk; return also how the attempt ends if that cannot be done.

    Nobody else may touch the job's checkpoints meanwhile: the job has not been started, nothing is committed.
    """
    parts.status.time("restore_began")
    bring = partial(parts.restorer.restore, attempt)
    try:
        try:
            restored = parts.patiently("restore", bring)
        except TornError:
            # A torn download is tried once more before the checkpoint itself counts as torn.
            restored = parts.patiently("restore", bring)
    except TornError as error:
        parts.patiently("put the torn checkpoint aside", partial(parts.restorer.discard, attempt))
        return NOTHING, JobOutcome(JobVerdict.FAILED, f"restore: {error}")
    except SliceSizeError as error:
        return NOTHING, JobOutcome(JobVerdict.FAILED, f"restore: {error}")
    if parts.format.at_end and not parts.settings.checkpoints.in_bucket:
        parts.patiently("bring outputs back", partial(bring_outputs_back, parts))
    parts.status.time("restored")
    return restored, None


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
    files: Dict[str, UnclaimedFile] = {}
    if not outputs_in(folder):
        held = read_manifests(parts.bucket, mine.incarnation)
        job = (mine.bundle, mine.settings_digest, mine.workers)
        files = outputs_before(held, mine.worker, mine.incarnation, job)
    if not files:
        return
    temporary = folder / f"{RESTORING}outputs"
    shutil.rmtree(str(temporary), ignore_errors=True)
    temporary.mkdir()
    start, count = f"{SavedPlace.CHECKPOINTS.value}/", 0
    for stored in files.values():
        # Two slashes in a row would make the rest an absolute path, which `/` goes to.
        if not stored.name.startswith(start) or not is_plain(stored.name[len(start) :]):
            continue
        place, target = temporary / "file", folder / stored.name[len(start) :]
        try:
            digest = parts.bucket.download(stored.object, place, stored.size)
        except TornError as error:
            say(f"{stored.name} does not come back: {error}")
            continue
        if place.stat().st_size != stored.size or digest != stored.sha256:
            say(f"{stored.name} does not come back: the bucket holds other bytes than were saved")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Renamed only after its checksum: a job that is killed here finds whole files or none.
            place.replace(target)
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise
            say(f"{stored.name} does not come back: {error}")
            continue
        count += 1
    shutil.rmtree(str(temporary), ignore_errors=True)
    parts.log.line(f"--- {count} outputs of earlier machines are back ---")
