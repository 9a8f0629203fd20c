"""Prepare a start in parallel: restore the checkpoint while code, image and Python are installed."""

from __future__ import annotations

import errno
import shutil
from functools import partial
from typing import Dict, Optional, Tuple

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.attempt.install_bundle import fetch
from orchestrator.agent.attempt.rescue import read_manifests
from orchestrator.agent.checkpoints.local_checkpoints import RESTORING
from orchestrator.agent.checkpoints.restore import NOTHING, Restored
from orchestrator.agent.context import AgentContext
from orchestrator.agent.machine.venv import own_python
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.agent.side_threads import say
from orchestrator.contract.bucket.manifest import is_plain
from orchestrator.contract.bucket.uncommitted_manifest import FolderKind, UncommittedFile, outputs_before
from orchestrator.contract.formats.outputs import outputs_in
from orchestrator.contract.machine_errors import AgentError, DamagedError, SliceSizeError, TransientError


def fetch_code(context: AgentContext) -> None:
    """Download the bundle and switch `current` to it. Raise OSError for every failure."""
    try:
        fetch(context.settings.layout, context.bucket, context.settings.bundle)
    except AgentError as error:
        # `up` may replace a damaged archive, so it is retried like a missing one.
        raise OSError(str(error)) from error
    context.heartbeat.time("fetched", again=False)


def pull_image(context: AgentContext) -> Optional[JobOutcome]:
    """Pull the image of `job.image`, if one is set; return an outcome if that fails, else None."""
    if context.container is None:
        return None
    context.heartbeat.time("image_began")
    try:
        context.patiently("read which image it is", context.container.known)
        context.container.pull()
    except TransientError as error:
        return JobOutcome(JobOutcomeKind.EXCUSED, str(error))
    except (AgentError, OSError) as error:
        # If a machine has pulled this image before, name and permissions are right: the registry is at fault.
        known = context.patiently("read which image it is", context.container.known)
        return JobOutcome(JobOutcomeKind.EXCUSED if known else JobOutcomeKind.FAILED, str(error))
    context.heartbeat.time("image_ready")
    context.heartbeat.set(image=context.container.pinned)
    return None


def install_wanted_python(context: AgentContext) -> Optional[JobOutcome]:
    """Install the Python of `job.python`; return an outcome if that fails, else None."""
    try:
        own_python(context.environ, context.settings.layout, lambda: context.bucket)
    except (AgentError, OSError) as error:
        return JobOutcome(JobOutcomeKind.FAILED, str(error))
    return None


def restore_checkpoint(context: AgentContext, attempt: Attempt) -> Tuple[Restored, Optional[JobOutcome]]:
    """
    Restore the checkpoint of an attempt to the disk; return also an outcome if that fails.

    Must not run beside the job or a commit, since it moves files in the job's checkpoint folder.
    """
    context.heartbeat.time("restore_began")
    restore = partial(context.restorer.restore, attempt)
    try:
        try:
            restored = context.patiently("restore", restore)
        except DamagedError:
            # A failed comparison may be a bad download, so it is repeated once before the checkpoint
            # counts as torn.
            restored = context.patiently("restore", restore)
    except DamagedError as error:
        context.patiently("put the torn checkpoint aside", partial(context.restorer.discard, attempt))
        return NOTHING, JobOutcome(JobOutcomeKind.FAILED, f"restore: {error}")
    except SliceSizeError as error:
        return NOTHING, JobOutcome(JobOutcomeKind.FAILED, f"restore: {error}")
    if context.format.at_end and not context.settings.checkpoints.in_bucket:
        context.patiently("restore outputs", partial(restore_outputs, context))
    context.heartbeat.time("restored")
    return restored, None


NO_PLACE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG)
"""Errors that mean that a name cannot exist in this folder; a retry cannot help."""


def restore_outputs(context: AgentContext) -> None:
    """
    Fill an empty output folder with the files that earlier machines of this job have uploaded.

    Raise AgentError or OSError. A file whose checksum is wrong is skipped; the job creates it again.
    """
    folder = context.local.folder
    folder.mkdir(parents=True, exist_ok=True)
    mine = context.settings
    files: Dict[str, UncommittedFile] = {}
    if not outputs_in(folder):
        held = read_manifests(context.bucket, mine.incarnation)
        job = (mine.bundle, mine.settings_digest, mine.workers)
        files = outputs_before(held, mine.worker, mine.incarnation, job)
    if not files:
        return
    temporary = folder / f"{RESTORING}outputs"
    # An agent that was killed may have left a part of a file here.
    shutil.rmtree(str(temporary), ignore_errors=True)
    temporary.mkdir()
    start, count = f"{FolderKind.CHECKPOINTS.value}/", 0
    for stored in files.values():
        # A name with `//` would become an absolute path, and `/` would leave the folder.
        if not stored.name.startswith(start) or not is_plain(stored.name[len(start) :]):
            continue
        downloaded, target = temporary / "file", folder / stored.name[len(start) :]
        try:
            digest = context.bucket.download(stored.object, downloaded, stored.size)
        except DamagedError as error:
            say(f"{stored.name} does not come back: {error}")
            continue
        if downloaded.stat().st_size != stored.size or digest != stored.sha256:
            say(f"{stored.name} does not come back: the bucket holds other bytes than were saved")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Renamed only after its checksum is right: a job that is killed here finds whole files only.
            downloaded.replace(target)
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise
            say(f"{stored.name} does not come back: {error}")
            continue
        count += 1
    shutil.rmtree(str(temporary), ignore_errors=True)
    context.log.say(f"{count} outputs of earlier machines are back")
