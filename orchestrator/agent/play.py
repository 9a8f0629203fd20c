"""
One attempt on this worker: restore, set up, spawn, watch, last commit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import Any, Dict, Optional

from . import record as records
from .errors import AgentError, FencedError, FinalError, SliceSizeError, TornError
from .gang import Attempt
from .job import Job
from .layout import write_atomically
from .orders import Interrupted
from .outcome import Outcome, Verdict, judge
from .parts import Parts
from .processes import boot_id
from .progress import Progress, read_progress
from .record import Record
from .threads import say

TICK = 0.1
LAST_COMMIT = 25.0
LAST_TRIES = 4
STALL_GRACE = 5.0


class Player:
    """
    Play attempts, one after the other; *record* is what is known of the last one.
    """

    def __init__(self, parts: Parts, record: Record) -> None:
        self._parts = parts
        self._settings = parts.settings
        self.record = record
        self._progress = Progress()
        self._moved_at = 0.0

    def play(self, attempt: Attempt) -> Outcome:
        """
        Run the job for this attempt to its end. When it returns or raises, no process of the job is left.

        Raises Interrupted after the job was asked to stop, had its grace, and its last commit was tried.
        """
        parts = self._parts
        parts.committer.end()
        parts.status.set(
            phase="restore",
            attempt=attempt.attempt,
            failures=attempt.failures,
            resumed_from=attempt.resume_step,
            committed_step=attempt.resume_step,
            step=None,
            loss=None,
            message="",
        )
        target = self._settings.target
        if target is not None and attempt.resume_step is not None and attempt.resume_step >= target:
            return Outcome(Verdict.DONE, f"step {attempt.resume_step} is committed, the target is {target}")
        return self._restore(attempt) or self._set_up(attempt) or self._train(attempt)

    def last_commit(self) -> str:
        """
        Commit everything that the job has finished, waiting for the bucket as long as it takes.

        Return what could not be committed, empty when all is. Raises Interrupted.
        """
        trouble = ""
        for _try in range(LAST_TRIES):
            try:
                while self._parts.patiently("last commit", self._parts.committer.commit):
                    continue
            except FencedError:
                return ""
            except FinalError as error:
                # The job is over, so a folder that changed a moment ago is at rest now.
                trouble = str(error)
                say(f"last commit: {trouble}")
            else:
                return ""
        return trouble

    def _restore(self, attempt: Attempt) -> Optional[Outcome]:
        parts = self._parts
        try:
            for last in (False, True):
                try:
                    parts.patiently("restore", lambda: parts.restorer.restore(attempt))
                    break
                except TornError:
                    if last:
                        raise
        except TornError as error:
            parts.patiently("put the torn checkpoint aside", lambda: parts.restorer.discard(attempt))
            return Outcome(Verdict.FAILED, f"restore: {error}")
        except SliceSizeError as error:
            return Outcome(Verdict.FAILED, f"restore: {error}")
        parts.status.time("restored")
        return None

    def _set_up(self, attempt: Attempt) -> Optional[Outcome]:
        settings = self._settings
        mark = settings.layout.setup_done(settings.bundle)
        if not settings.setup or mark.exists():
            return None
        self._parts.status.set(phase="setup", message="setup command runs")
        self._parts.log.line(f"--- setup of bundle {settings.bundle[:12]} ---")
        outcome = self._run(attempt, settings.setup, target=None)
        if outcome.verdict is Verdict.DONE:
            self._parts.patiently("write the mark of the setup", lambda: write_atomically(mark, ""))
            return None
        return Outcome(outcome.verdict, outcome.reason.replace("the job", "the setup command"))

    def _train(self, attempt: Attempt) -> Outcome:
        parts, settings = self._parts, self._settings
        origin = (
            "start from the beginning"
            if attempt.resume_step is None
            else f"resume from step {attempt.resume_step}"
        )
        parts.log.line(
            f"--- incarnation {settings.incarnation}, worker {settings.worker}, attempt {attempt.attempt}: "
            f"{origin} ({attempt.reason}) ---"
        )
        parts.status.set(phase="run", starts=self.record.starts + 1, message="")
        self._remember(starts=self.record.starts + 1)
        # The start is reported before it happens, so that a machine that loses its disk still learns of it.
        with contextlib.suppress(AgentError, OSError):
            parts.reporter.report(5.0, at_once=True)
        parts.committer.begin(attempt.attempt, attempt.resume_step)
        outcome = self._run(attempt, settings.command, settings.target)
        if outcome.verdict is Verdict.OVERTAKEN:
            return outcome
        trouble = self.last_commit()
        if trouble:
            return Outcome(Verdict.FAILED, f"the last checkpoint cannot be committed: {trouble}")
        committed = parts.status.get("committed_step")
        if settings.target is not None and committed is not None and committed >= settings.target:
            return Outcome(Verdict.DONE, f"step {committed} is committed, the target is {settings.target}")
        return outcome

    def _run(self, attempt: Attempt, command: str, target: Optional[int]) -> Outcome:
        """
        Start a command and watch it to its end.
        """
        parts, layout = self._parts, self._settings.layout
        with contextlib.suppress(FileNotFoundError):
            layout.progress.unlink()
        self._progress, self._moved_at = Progress(), time.monotonic()
        self._remember(
            incarnation=self._settings.incarnation,
            attempt=attempt.attempt,
            bundle=self._settings.bundle,
            boot=boot_id(),
            session=None,
            ended="",
        )
        try:
            job = Job(layout.root, command, layout.current, self._environ(attempt), parts.log.write)
        except OSError as error:
            return Outcome(Verdict.FAILED, f"the job cannot be started: {error}")
        try:
            # The session is a second way to find the job's processes; their mark is the first.
            with contextlib.suppress(OSError):
                self.record = records.save(layout, self.record.with_session(job.session))
            parts.status.time("spawned")
            return self._watch(job, attempt, target)
        except Interrupted as order:
            parts.status.set(phase="stopping", message=order.ending.reason)
            job.ask_to_stop(self._settings.grace)
            self._clear(job)
            self._commit_in_time()
            raise
        finally:
            self._clear(job)
            self._look()
            parts.status.set(exit_code=job.exit_code())

    def _remember(self, **changes: Any) -> None:
        """
        Write state/job.json before what it records happens, waiting for a full disk to get room.
        """
        save = partial(records.save, self._settings.layout, self.record, **changes)
        self.record = self._parts.patiently("write state/job.json", save)

    def _watch(self, job: Job, attempt: Attempt, target: Optional[int]) -> Outcome:
        reached_at: Optional[float] = None
        while True:
            code = job.exit_code()
            self._look()
            committed = self._parts.status.get("committed_step")
            if code is not None:
                return judge(code, target, self._progress.step, committed)
            if self._parts.orders.overtaken(attempt.attempt):
                return Outcome(Verdict.OVERTAKEN, "the gang has gone on")
            if self._stalled():
                job.ask_to_stop(min(STALL_GRACE, self._settings.grace))
                return Outcome(Verdict.FAILED, f"stalled: nothing new for {self._settings.stall:g} s")
            if target is not None and committed is not None and committed >= target:
                reached_at = reached_at or time.monotonic()
                if time.monotonic() - reached_at > self._settings.grace:
                    job.ask_to_stop(self._settings.grace)
                    return judge(0, target, None, committed)
            self._parts.orders.wait(TICK)

    def _look(self) -> None:
        """
        Read the job's progress and note when it moved.
        """
        now = read_progress(self._settings.layout.progress)
        if now.step is None or now == self._progress:
            return
        if now.step != self._progress.step:
            self._moved_at = time.monotonic()
            self._parts.status.time("first_step", again=self._progress.step is None)
            self._parts.status.set(progress_at=time.time())
        self._progress = now
        self._parts.status.set(step=now.step, loss=now.loss)

    def _stalled(self) -> bool:
        committed_at = self._parts.status.get("committed_at") or 0.0
        if not self._settings.stall or time.time() - committed_at < self._settings.stall:
            return False
        return time.monotonic() - max(self._moved_at, self._parts.log.last_at) > self._settings.stall

    def _clear(self, job: Job) -> None:
        """
        Return only when no process of the job is seen: a second job beside the first would write over it.
        """
        while True:
            left = job.clear()
            self._parts.status.trouble("clear", f"processes {left} do not die" if left else "")
            if not left:
                return

    def _commit_in_time(self) -> None:
        """
        Try the last commit for as long as a machine that is being taken away may have.
        """

        def commit() -> None:
            try:
                while self._parts.committer.commit():
                    continue
            except (AgentError, OSError) as error:
                self._parts.status.trouble("last commit", str(error))

        thread = threading.Thread(target=commit, name="last-commit", daemon=True)
        thread.start()
        thread.join(LAST_COMMIT)
        if thread.is_alive():
            self._parts.status.trouble("last commit", f"not finished within {LAST_COMMIT:g} s")

    def _environ(self, attempt: Attempt) -> Dict[str, str]:
        settings = self._settings
        step = attempt.resume_step
        return dict(
            self._parts.environ,
            TPUCTL_ROOT=str(settings.layout.root),
            TPUCTL_JOB=f"{settings.deployment}/{settings.incarnation}/{attempt.attempt}",
            TPUCTL_ATTEMPT=str(attempt.attempt),
            TPUCTL_RESUME_STEP="" if step is None else str(step),
            TPUCTL_PROGRESS_FILE=str(settings.layout.progress),
            TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
        )
