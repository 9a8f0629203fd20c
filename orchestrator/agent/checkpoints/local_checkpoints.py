"""Judge the checkpoints on the machine's disk: which are complete, and which go to quarantine."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from orchestrator.agent.checkpoints.ignored import RestoredFiles
from orchestrator.agent.checkpoints.observed_save import FileState, ObservedSave
from orchestrator.agent.settings import CheckpointSettings
from orchestrator.agent.side_threads import say
from orchestrator.contract.clock import Clock
from orchestrator.contract.formats.base import (
    LONG,
    Format,
    LocalSave,
    SaveState,
    SaveVerdict,
    unfinished,
)
from orchestrator.contract.machine_errors import DamagedError

RESTORING = ".restore-"
QUARANTINED = 5
CLOCK_TICKS = 0.05
"""Most seconds by which the kernel's times of a file and its folder differ for one change."""
QUICKEST = 0.25
"""Least seconds between two checks for a finished save: what is saved and not committed yet is lost by a kill."""
READING = 0.05
"""Share of the time that checks may take; each may list a large folder, or read a large file."""
DYING = 0.1
"""Seconds after a signal in which a program that does not know it may still write, in a container above all."""


@dataclass(frozen=True)
class LocalCheckpoint:
    """A save on disk that was judged: its step, its state and the reason."""

    step: int
    save: LocalSave
    state: SaveState
    message: str

    @property
    def complete(self) -> bool:
        """Return whether it may be committed and resumed from."""
        return self.state is SaveState.COMPLETE

    @property
    def own_step(self) -> Optional[int]:
        """Return the step stored in the save itself, None if it has none."""
        return self.step if self.step >= 0 else None


class LocalCheckpoints:
    """
    The folder that the job saves to; doubtful saves are moved to *quarantine*.

    A save is judged again only if one of its files has changed, since it may be large. While the job
    runs, two polls are *poll_interval* seconds apart.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        format_: Format,
        quarantine: Path,
        poll_interval: float,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self.folder = Path(settings.folder)
        self.format = format_
        self._quarantine = quarantine
        self._lock = threading.Lock()
        self._judged: Dict[str, ObservedSave] = {}
        self._poll_interval = poll_interval
        self._clock = clock
        self.at_rest = True
        self._rests_since: Optional[float] = self._clock.monotonic()
        self._in_order = False
        self._asked_at: Optional[float] = None
        self._headed_at = self._clock.monotonic()
        self.newest: Optional[int] = None
        self.restored = RestoredFiles()

    def checkpoints(self) -> List[LocalCheckpoint]:
        """
        Judge all saves; return them in ascending order, of two with the same step the preferred one last.

        Raise OSError.
        """
        with self._lock:
            saves = self.format.find(self.folder)
            found = [one for one in map(self._judge, saves) if self.format.owns(one.save)]
            names = {_key(save) for save in saves}
            # Drop saves that the job has deleted, or the table would grow for as long as it trains.
            self._judged = {name: held for name, held in self._judged.items() if name in names}
            heads = [one for one in found if one.save.live]
            if not heads or any(one.complete for one in heads):
                self._headed_at = self._clock.monotonic()
            found.sort(key=lambda one: (one.step, one.save.rank, one.save.name))
            self.newest = max((one.step for one in found if one.complete and one.step >= 0), default=None)
            return found

    def forget(self) -> None:
        """Forget the newest save, because another attempt starts."""
        self.newest = None
        self.at_rest = False
        self._in_order = False
        self._rests_since = self._asked_at = None
        self._headed_at = self._clock.monotonic()

    def pause_after(self, took: float) -> float:
        """Return the seconds until the next check for a finished save, after one that took *took* seconds."""
        return min(self._poll_interval, max(QUICKEST, took / READING))

    def asked_to_stop(self) -> None:
        """Record that the job gets a signal now: what it writes later is a save that it makes because of it."""
        self._asked_at = time.time()
        self._rests_since = self._clock.monotonic()

    def has_not_stopped(self) -> None:
        """Record that the job had to be killed after the signal, perhaps in the middle of a save."""
        self._asked_at = None

    def rest(self, *, in_order: bool = False) -> None:
        """
        Record that the job has no process left, so files do not change any more.

        *in_order*: it exited with status 0, so it was not killed between two files of one save.
        """
        if self._rests_since is None:
            self._rests_since = self._clock.monotonic()
        self.at_rest = True
        self._in_order = in_order

    @property
    def headless(self) -> bool:
        """Return whether the newest save, including files replaced in place, has been incomplete for long."""
        return self._clock.monotonic() - self._headed_at > LONG * self._poll_interval

    def chosen(self, step: int) -> Optional[LocalCheckpoint]:
        """Return the complete checkpoint of that step, None if it is not on this disk."""
        return next((one for one in reversed(self.checkpoints()) if one.complete and one.step == step), None)

    def target(self) -> Optional[int]:
        """Return the training's last step as stored in the newest complete checkpoint."""
        whole = [one for one in self.checkpoints() if one.complete]
        return self.format.target(self.folder, whole[-1].save) if whole else None

    def files_of(self, save: LocalSave) -> Tuple[FileState, ...]:
        """Return the state of every file of a save, sorted by name. Raise OSError if one is deleted meanwhile."""
        if save.files is None:
            return files_below(self.folder / save.folder)
        return tuple(_state(self.folder / save.folder, name) for name in sorted(save.files))

    def copy(self, checkpoint: LocalCheckpoint) -> Tuple[Path, LocalCheckpoint]:
        """
        Copy the files of a live save to a temporary folder; return that and what the copy is.

        The caller deletes the folder. The job may have saved again since *checkpoint* was judged. Raise
        DamagedError if the files changed meanwhile or the copy is not complete, OSError if it cannot be made.
        """
        folder = self._temporary()
        # Compared before and after: a file replaced during the copy would mix two saves.
        before = self.files_of(checkpoint.save)
        try:
            for one in before:
                target = folder / checkpoint.save.folder / one.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(self.folder / checkpoint.save.folder / one.name), str(target))
            changed = self.files_of(checkpoint.save) != before
            # The copy is judged, not the original, because the copy will be uploaded.
            judged = self.format.judge(folder, checkpoint.save)
        except BaseException:
            shutil.rmtree(str(folder), ignore_errors=True)
            raise
        if changed or judged.state is not SaveState.COMPLETE:
            shutil.rmtree(str(folder), ignore_errors=True)
            message = (
                "changed while it was copied" if changed else f"is {judged.state.value}: {judged.message}"
            )
            raise DamagedError(f"{checkpoint.save.name} {message}, so it is not committed")
        return folder, _checkpoint_of(checkpoint.save, judged)

    def link(self, checkpoint: LocalCheckpoint) -> Path:
        """
        Link the files of a numbered save into a temporary folder and return that; the caller deletes it.

        Raise DamagedError if the save changed meanwhile, OSError if it cannot be linked, if the disk is nearly
        full, or if the job may be deleting the save: it is whole only if it is there for the time of its upload.
        """
        folder, before = self._temporary(), self.files_of(checkpoint.save)
        # What the job deletes stays on the disk until the upload ends, when it may have written two more.
        needed = 2 * sum(one.size for one in before)
        if shutil.disk_usage(str(self.folder)).free < needed:
            raise OSError(f"less than {needed} bytes are free")
        if checkpoint.save.files is None and lost_files(self.folder / checkpoint.save.folder):
            raise OSError("a file was deleted there after the last one was written")
        # Other saves change the folder of files that stand beside them: these are linked if the format proves that
        # none is missing.
        held = self._judged.get(_key(checkpoint.save))
        if checkpoint.save.files is not None and len(before) > 1 and (held is None or held.judged.rest):
            raise OSError("it has several files, and none of them says how many")
        try:
            for one in before:
                target = folder / checkpoint.save.folder / one.name
                target.parent.mkdir(parents=True, exist_ok=True)
                source = self.folder / checkpoint.save.folder / one.name
                os.link(os.path.realpath(str(source)), str(target))
            same = self.files_of(checkpoint.save) == before and checkpoint in self.checkpoints()
        except BaseException:
            shutil.rmtree(str(folder), ignore_errors=True)
            raise
        if not same:
            shutil.rmtree(str(folder), ignore_errors=True)
            raise DamagedError(f"{checkpoint.save.name} changed while it was linked, so it is not committed")
        return folder

    def _temporary(self) -> Path:
        """Return the path of the folder for one copy or link, without what an earlier agent left there."""
        folder = self._quarantine.with_name("copy")
        shutil.rmtree(str(folder), ignore_errors=True)
        return folder

    def quarantine(self, save: LocalSave, *, torn: bool) -> Path:
        """Move a save to the quarantine as `[torn-]NAME-TIME` and return its path; nothing is deleted."""
        # By the system's clock, also in tests: it makes the name unique.
        name = f"{'torn-' if torn else ''}{save.name.replace('/', '_')}-{time.time_ns()}"
        try:
            target = self._move(save, self._quarantine / name)
        except OSError:
            # The checkpoint folder may be on another disk, where a rename to the quarantine fails.
            target = self._move(save, self.folder / f".quarantine-{name}")
        self._thin()
        return target

    def _move(self, save: LocalSave, target: Path) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self.folder / save.folder
        if save.files is None:
            source.rename(target)
            return target
        target.mkdir(exist_ok=True)
        for name in save.files:
            if (source / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                # Renames only, so that a kill in between deletes nothing.
                (source / name).rename(target / name)
        return target

    def _thin(self) -> None:
        """Delete all but the newest folders in quarantine, so that a crash loop cannot fill the disk."""
        if not self._quarantine.is_dir():
            return
        held = sorted(self._quarantine.iterdir(), key=lambda one: one.name.rsplit("-", 1)[-1])
        for old in held[:-QUARANTINED]:
            say(f"{old} is removed: {QUARANTINED} newer folders are in quarantine")
            # Another process may be using it; the next call deletes what remains.
            shutil.rmtree(str(old), ignore_errors=True)

    def _judge(self, save: LocalSave) -> LocalCheckpoint:
        """Judge a save; if its files vanish meanwhile, the job is deleting it."""
        try:
            pointers = tuple(
                _state(self.folder, name) for name in self.format.pointers if (self.folder / name).exists()
            )
            states = (self.files_of(save), pointers)
            held = self._judged.get(_key(save))
            if held is None or held.states != states:
                judged = self.format.judge(self.folder, save)
                now = self._clock.monotonic()
                held = (
                    ObservedSave(states, judged, now, 0, counted=now)
                    if held is None
                    else held.changed(states, judged, now, self._poll_interval)
                )
                self._judged[_key(save)] = held
            judged = self._rested(save, held)
        except FileNotFoundError as error:
            judged = unfinished(f"{error.filename} vanished")
        return _checkpoint_of(save, judged)

    def _rested(self, save: LocalSave, held: ObservedSave) -> SaveVerdict:
        """Return the verdict, or that the save is unfinished until its job has finished writing it."""
        judged = held.judged
        if judged.state is not SaveState.COMPLETE or not judged.rest:
            return judged
        since = self._rests_since
        now = since if self.at_rest and since is not None else self._clock.monotonic()
        # A program that does not know the signal ends at once and writes nothing more.
        written = max((one.modified for one in held.states[0]), default=0) / 1e9
        in_order = self._in_order or (self._asked_at is not None and written > self._asked_at + DYING)
        finished = held.finished(now, self._poll_interval, at_rest=self.at_rest, in_order=in_order)
        if finished is None:
            return unfinished(
                "a file of it is not there yet" if judged.rest == LONG else "it may still be written"
            )
        self._judged[_key(save)] = finished
        return judged


def files_below(folder: Path) -> Tuple[FileState, ...]:
    """Return the state of every file under *folder*, sorted by name. Raise OSError if one is deleted meanwhile."""
    found = []
    for base, _folders, names in os.walk(str(folder)):
        found += [_state(folder, (Path(base) / name).relative_to(folder).as_posix()) for name in names]
    return tuple(sorted(found, key=lambda one: one.name))


def lost_files(folder: Path) -> bool:
    """Return whether a file below *folder* may have been deleted after the last one was written there."""
    for base, folders, names in os.walk(str(folder)):
        # A new name changes its folder and its file at the same time, a deleted one the folder only.
        changed = [(Path(base) / name).lstat().st_ctime for name in (*folders, *names)]
        if Path(base).stat().st_mtime > max(changed, default=0.0) + CLOCK_TICKS:
            return True
    return False


def _checkpoint_of(save: LocalSave, judged: SaveVerdict) -> LocalCheckpoint:
    return LocalCheckpoint(
        save.step if judged.step is None else judged.step, save, judged.state, judged.message
    )


def _key(save: LocalSave) -> str:
    """Return a stable name; the newest save of single files has the name of another file each time."""
    return "newest single files" if save.live and save.files is not None and save.rank else save.name


def _state(folder: Path, name: str) -> FileState:
    state = (folder / name).stat()
    return FileState(name, state.st_size, state.st_mtime_ns, state.st_ino)
