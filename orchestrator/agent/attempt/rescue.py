"""Rescue files that no checkpoint contains: report them during the run, upload them before the machine goes."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.checkpoints.uncommitted import (
    BUCKET,
    FoundFile,
    FoundFiles,
    find_uncommitted,
    stray_in,
)
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.context import PAUSES, AgentContext
from orchestrator.agent.side_threads import say
from orchestrator.contract.backoff import retried
from orchestrator.contract.bucket.object_names import UNCOMMITTED
from orchestrator.contract.bucket.uncommitted_manifest import (
    FolderKind,
    RescueMoment,
    Skip,
    Skipped,
    UncommittedFile,
    UncommittedManifest,
    ended_before,
    free_name,
    manifest_name,
    parse,
    parse_name,
)
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.formats.reading.save_like import (
    checkpoint_like,
    may_hold_state,
    save_folder_like,
    save_like,
)
from orchestrator.contract.machine_errors import AgentError, DamagedError, FinalError
from orchestrator.contract.phase import Phase

T = TypeVar("T")
Call = Callable[[str, Callable[[], Any]], Any]
"""Runs its second argument with retries; the first one names the action in messages."""
ByContent = Dict[Tuple[str, int], UncommittedFile]
"""Files in the bucket by (sha256, size)."""
WRITE_INTERVAL = 1.0
"""Seconds between two partial manifests; Cloud Storage allows about one write a second for one object."""
CHANGES = 3
"""Reads of a changing file before it is skipped: the job has ended, so some other program writes it."""
REMEMBERED = 20
"""Number of earlier incarnations whose manifests are read, so that their files are not sent again."""
PARALLEL = 4


class OutOfTimeError(AgentError):
    """The time before the machine goes is over; some files are not uploaded."""


class Rescue:
    """
    Uploads what `find_uncommitted` finds, writes the manifest last, and reports it in the heartbeat.

    After a kill the next one continues from the partial manifest. Contents that the bucket already has, also
    from earlier machines, are not sent again.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._clock = context.clock
        self._settings = context.settings
        self._until: Optional[float] = None
        self._written = 0.0

    def found(self, committed: Optional[int], since: float) -> FoundFiles:
        """Return what no commit up to step *committed* contains. Raises OSError."""
        home = self._context.environ.get("HOME", "")
        return find_uncommitted(self._settings, self._context.local, committed, since, home)

    def after_the_end(
        self, attempt: Attempt, committed: Optional[int], files: FoundFiles
    ) -> UncommittedManifest:
        """
        Upload *files* of a job that has ended, and wait for the bucket as long as it takes.

        Raise AgentMustEnd; the next agent, or `in_time`, then continues.
        """
        manifest = self._manifest(
            attempt.attempt, RescueMoment.UNCOMMITTED if committed is None else RescueMoment.BESIDE
        )
        return self._upload_files(*files, manifest, self._context.patiently)

    def in_time(
        self, moment: RescueMoment, attempt: int, committed: Optional[int], since: float, timeout: float
    ) -> None:
        """
        Upload what fits into *timeout* seconds, newest first.

        If the bucket has a checkpoint, only files that look like saves are uploaded.
        """
        self._until = self._clock.monotonic() + timeout
        try:
            found, skipped = self.found(committed, since)
            if moment is RescueMoment.NOTICE and committed is not None:
                found = [one for one in found if one.save_like]
            if found:
                self._upload_files(found, skipped, self._manifest(attempt, moment), self._hurried)
        except (AgentError, OSError) as error:
            self._context.heartbeat.warn("rescue", f"not everything is in the bucket: {error}")

    def earlier(self) -> Tuple[UncommittedManifest, ...]:
        """Return the uncommitted files of earlier machines on which this same job exited with status 0."""
        settings = self._settings
        return ended_before(
            self._manifests(), settings.incarnation, settings.bundle, settings.settings_digest
        )

    def report(self, manifest: UncommittedManifest) -> None:
        """Put what is in the bucket into the heartbeat."""
        saves = [one.name for one in manifest.files if save_like(one.name.rpartition("/")[2])]
        shown = [*saves, *(one.name for one in manifest.files), ""][0]
        kind, _, name = shown.partition("/")
        if not shown and self._context.heartbeat.get("uncommitted_place") == BUCKET:
            kind, name = BUCKET, str(self._context.heartbeat.get("uncommitted"))
        self._context.heartbeat.set(
            uncommitted_files=len(manifest.files), uncommitted_bytes=manifest.size,
            uncommitted_complete=manifest.complete, uncommitted=name, uncommitted_place=kind,
            uncommitted_state=self.state_of(kind, name),
        )  # fmt: skip

    def state_of(self, kind: str, name: str) -> str:
        """Return the state of the save that contains a file of the checkpoint folder, "" if none does."""
        if kind != FolderKind.CHECKPOINTS.value or self._settings.checkpoints.in_bucket:
            return ""
        with contextlib.suppress(OSError):
            for one in self._context.local.checkpoints():
                if one.save.holds(name):
                    return one.state.value
        return ""

    def recall(self) -> None:
        """Put what an earlier agent of this machine has uploaded into the heartbeat."""
        name = manifest_name(self._settings.incarnation, self._settings.worker)
        held = self._context.patiently("read the manifest", lambda: self._context.bucket.read(name))
        with contextlib.suppress(DamagedError):
            if held is not None:
                self.report(parse(held.data, name))

    def _manifest(self, attempt: int, moment: RescueMoment) -> UncommittedManifest:
        one = self._settings
        return UncommittedManifest(
            one.incarnation, one.worker, one.workers, attempt, one.bundle, one.settings_digest,
            one.checkpoints.format, moment, False, (), (), self._clock.now(),
        )  # fmt: skip

    def _upload_files(
        self, found: List[FoundFile], skipped: List[Skipped], manifest: UncommittedManifest, call: Call
    ) -> UncommittedManifest:
        """Upload what is missing and write the manifest; *call* retries failures of the bucket."""
        known: ByContent = {}
        taken: Dict[str, UncommittedFile] = {}
        uploaded: Dict[str, UncommittedFile] = {}
        for one in call("read unclaimed/", self._manifests):
            for stored in one.files:
                known[stored.sha256, stored.size], taken[stored.object] = stored, stored
                if (one.incarnation, one.worker) == (manifest.incarnation, manifest.worker):
                    # A rewritten manifest keeps the entries that it had before.
                    uploaded[stored.name] = stored
        # Files named by a manifest may have been deleted since; those are sent again.
        there: Set[str] = set(call("list unclaimed/", lambda: self._context.bucket.list(UNCOMMITTED)))
        known = {key: stored for key, stored in known.items() if stored.object in there and key[0]}
        if manifest.moment is RescueMoment.UNCOMMITTED:
            uploaded.update((one.name, one) for one in call("list the checkpoints", self._in_bucket))
        self._written = float("-inf")
        with ThreadPoolExecutor(PARALLEL) as pool:
            for start in range(0, len(found), PARALLEL):
                batch = found[start : start + PARALLEL]
                for result in pool.map(lambda one: self._keep(one, known, taken, call), batch):
                    if isinstance(result, Skipped):
                        skipped = [*skipped, result]
                        continue
                    uploaded[result.name] = known[result.sha256, result.size] = result
                    taken[result.object] = result
                manifest = self._with(manifest, uploaded, skipped)
                if self._clock.monotonic() - self._written >= WRITE_INTERVAL:
                    self._write(manifest, call)
        # `complete` only in the last write: after a kill before it, the next agent continues from the partial one.
        manifest = replace(self._with(manifest, uploaded, skipped), complete=True)
        self._write(manifest, call)
        say(f"unclaimed/: {len(uploaded)} files, {manifest.size} bytes, {len(skipped)} not brought")
        return manifest

    def _with(
        self, manifest: UncommittedManifest, uploaded: Dict[str, UncommittedFile], skipped: List[Skipped]
    ) -> UncommittedManifest:
        files, at = tuple(uploaded.values()), self._clock.now()
        return replace(manifest, files=files, skipped=tuple(skipped), at=at)

    def _keep(
        self, one: FoundFile, known: ByContent, taken: Dict[str, UncommittedFile], call: Call
    ) -> "UncommittedFile | Skipped":
        """Return the file as stored in the bucket, or the reason why it is skipped."""
        for _try in range(CHANGES):
            try:
                stored = self._sent(one, known, taken, call)
            except DamagedError:
                continue
            except OSError as error:
                say(f"{one.path}: {error}")
                return Skipped(one.name, Skip.UNREADABLE)
            if stored is not None:
                return stored
        return Skipped(one.name, Skip.CHANGED)

    def _sent(
        self, one: FoundFile, known: ByContent, taken: Dict[str, UncommittedFile], call: Call
    ) -> Optional[UncommittedFile]:
        """Upload the file unless the bucket has it; return None if its bytes changed between hash and upload."""
        # The upload reads the file again; different digests show that it changed.
        digest, size = sha256_of(one.path), one.path.stat().st_size
        held = known.get((digest, size))
        if held is not None:
            return UncommittedFile(one.name, size, digest, held.object)
        target = free_name(self._settings.incarnation, self._settings.worker, one.name, taken)
        sent = call(f"bring {one.name}", lambda: self._upload(target, one.path, size))
        return UncommittedFile(one.name, size, digest, target) if sent == digest else None

    def _upload(self, target: str, path: Path, size: int) -> str:
        try:
            return self._context.bucket.upload(target, path, size)
        except OSError as error:
            # An error of the disk, so waiting cannot help; the other files are still uploaded.
            raise DamagedError(f"{path}: {error}") from error

    def _write(self, manifest: UncommittedManifest, call: Call) -> None:
        """Write the manifest; every file that it names is already in the bucket."""
        name = manifest_name(manifest.incarnation, manifest.worker)
        call("write the manifest", lambda: self._context.bucket.write(name, manifest.text().encode()))
        self._written = self._clock.monotonic()
        self.report(manifest)

    def _manifests(self) -> List[UncommittedManifest]:
        return read_manifests(self._context.bucket, self._settings.incarnation)

    def _in_bucket(self) -> List[UncommittedFile]:
        """Return the files that the job itself wrote to the bucket, under their names there."""
        if not self._settings.checkpoints.in_bucket:
            return []
        prefix = self._context.checkpoints.prefix()
        sizes = self._context.bucket.sizes(prefix)
        return [
            UncommittedFile(f"{FolderKind.CHECKPOINTS.value}/{name[len(prefix) :]}", size, "", name)
            for name, size in sorted(sizes.items())
            if not name.endswith("/")
        ]

    def _hurried(self, doing: str, call: Callable[[], T]) -> T:
        """Run *call*, with retries until the time is over; then raise OutOfTimeError."""

        def failed(error: BaseException) -> None:
            if isinstance(error, FinalError):
                raise error
            self._context.heartbeat.warn("rescue", f"{doing}: {error}")

        clock = self._clock
        remaining = (self._until or 0.0) - clock.monotonic()
        try:
            return retried(
                call, (AgentError, OSError), PAUSES, timeout=remaining, now=clock.monotonic,
                # Not that of the end requests: this agent is ending and ignores further ones.
                wait=clock.wait, failed=failed,
            )  # fmt: skip
        except FinalError:
            raise
        except (AgentError, OSError) as error:
            raise OutOfTimeError(f"{doing}: {error}") from error


def read_manifests(bucket: JobBucket, incarnation: int) -> List[UncommittedManifest]:
    """Return the readable manifests up to *incarnation*, newest last."""
    found = []
    named = [one.rstrip("/").rpartition("/g")[2] for one in bucket.level(UNCOMMITTED)[1]]
    numbers = sorted(int(one) for one in named if one.isdecimal() and int(one) <= incarnation)
    # After many replacements, sending an old file again is cheaper than reading all manifests.
    for number in numbers[-REMEMBERED:]:
        for name in bucket.level(f"{UNCOMMITTED}g{number}/")[0]:
            held = bucket.read(name) if parse_name(name) else None
            with contextlib.suppress(DamagedError):
                one = parse(held.data, name) if held is not None else None
                if one is not None and (one.incarnation, one.worker) == parse_name(name):
                    found.append(one)
    return found


QUIET = 4
"""Heartbeats that a save may exist without any commit before it is reported."""
_Named = Tuple[FolderKind, str]


class Uncommitted:
    """Reports in the heartbeat that files look like saves although nothing is committed."""

    def __init__(self, context: AgentContext, rescue: Rescue, since: Callable[[], float]) -> None:
        self._context = context
        self._rescue = rescue
        self._since = since
        self._found_at: Dict[_Named, float] = {}

    def observe(self) -> None:
        """Update the heartbeat's `uncommitted` fields. Raise OSError or AgentError."""
        heartbeat = self._context.heartbeat
        if heartbeat.get("phase") != Phase.RUN or self._context.format.at_end:
            return
        if heartbeat.get("committed_step") is not None:
            heartbeat.set(uncommitted="", uncommitted_place="", uncommitted_state="")
            return
        # By our own clock, since a job may set any modification time.
        now, named = self._context.clock.monotonic(), self._names()
        self._found_at = {one: self._found_at.get(one, now) for one in named}
        quiet = QUIET * self._context.settings.heartbeat_interval
        # Report the newest one, which matters most.
        lying = [one for one in named if now - self._found_at[one] >= quiet]
        kind, name = (lying[0][0].value, lying[0][1]) if lying else ("", "")
        state = self._rescue.state_of(kind, name)
        if not name and not self._context.settings.worker:
            name = stray_in(self._context.bucket, self._since())
            kind = BUCKET if name else ""
        heartbeat.set(uncommitted=name, uncommitted_place=kind, uncommitted_state=state)

    def _names(self) -> List[_Named]:
        """Return files that look like saves and are not about to be committed, newest first."""
        if self._context.settings.checkpoints.in_bucket:
            prefix = self._context.checkpoints.prefix()
            names, folders = self._context.bucket.level(prefix)
            saves = [one[len(prefix) :] for one in names if checkpoint_like(one.rpartition("/")[2])]
            inner = [one[len(prefix) :].rstrip("/") for one in folders]
            return [(FolderKind.CHECKPOINTS, one) for one in (*saves, *filter(save_folder_like, inner))]
        found, _ = self._rescue.found(None, self._since())
        whole = self._whole()
        return [
            (one.kind, one.relative) for one in found
            if (one.save_like or (one.kind is FolderKind.CHECKPOINTS and may_hold_state(one.path.name)))
            and one.kind is not FolderKind.QUARANTINE
            and not (one.kind is FolderKind.CHECKPOINTS and any(_within(one.relative, name) for name in whole))
        ]  # fmt: skip

    def _whole(self) -> Set[str]:
        """Return the names of complete saves, which are about to be committed."""
        found: Set[str] = set()
        for one in self._context.local.checkpoints():
            if one.complete and one.save.files is None:
                found.add(one.save.folder)
            elif one.complete:
                start = "" if one.save.folder == "." else f"{one.save.folder}/"
                found |= {start + name for name in one.save.files or ()}
        return found


def _within(name: str, whole: str) -> bool:
    return name == whole or name.startswith(f"{whole}/")
