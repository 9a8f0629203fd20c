"""
One attempt on this worker: restore, set up, spawn, watch, last commit.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from functools import partial
from typing import Any, Dict, Mapping, Optional

from . import record as records
from .bring_back import BringBack, fetch_code
from .errors import AgentError
from .formats.base import Format
from .gang import Attempt
from .job import Job
from .last_commit import commit_in_time, last_commit
from .layout import write_atomically
from .orders import Interrupted
from .outcome import Outcome, Verdict, judge, settle
from .parts import Parts
from .processes import boot_id
from .progress import Progress, read_progress, step_in
from .record import Record
from .rehearsal import for_job, for_setup
from .restore import Restored
from .threads import say

TICK = 0.1
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
        self._trains = False
        self._restored = Restored("", ())

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
            began_at=None,
            loss=None,
            message="",
        )
        target = self._settings.target
        if target is not None and attempt.resume_step is not None and attempt.resume_step >= target:
            return Outcome(Verdict.DONE, f"step {attempt.resume_step} is committed, the target is {target}")
        return self._prepare(attempt) or self._train(attempt)

    def _prepare(self, attempt: Attempt) -> Optional[Outcome]:
        """
        Restore while the code comes and is set up; return None when the job can start.
        """
        back = BringBack(self._parts, attempt)
        back.start()
        self._parts.patiently("fetch the bundle", partial(fetch_code, self._parts))
        failed = self._set_up(attempt)
        if failed is not None:
            back.rest()
            return failed
        self._parts.status.set(phase="restore", message="")
        back.wait()
        self._restored = back.restored
        return back.outcome

    def _set_up(self, attempt: Attempt) -> Optional[Outcome]:
        settings = self._settings
        mark = settings.layout.setup_done(settings.bundle)
        if not settings.setup or mark.exists():
            return None
        self._parts.status.set(phase="setup", message="setup command runs")
        self._parts.status.time("setup_began")
        self._parts.log.line(f"--- setup of bundle {settings.bundle[:12]} ---")
        outcome = self._run(attempt, settings.setup, for_setup(self._environ(attempt)))
        if outcome.verdict is Verdict.DONE:
            self._parts.status.time("setup_done")
            self._parts.patiently("write the mark of the setup", lambda: write_atomically(mark, ""))
            return None
        return Outcome(outcome.verdict, outcome.reason.replace("the job", "the setup command"))

    def _train(self, attempt: Attempt) -> Outcome:
        parts, settings = self._parts, self._settings
        secrets = parts.patiently("read the secrets", parts.secrets.read)
        origin = (
            "start from the beginning"
            if attempt.resume_step is None
            else f"resume from step {attempt.resume_step}"
        )
        parts.log.line(
            f"--- incarnation {settings.incarnation}, worker {settings.worker}, attempt {attempt.attempt}: "
            f"{origin} ({attempt.reason}) ---"
        )
        for note in self._restored.notes:
            say(note)
            parts.log.line(f"--- {note} ---")
        if self._restored.path:
            parts.log.line(f"--- TPUCTL_RESUME={self._restored.path} ---")
        parts.status.set(phase="run", starts=self.record.starts + 1, message="")
        self._remember(starts=self.record.starts + 1)
        # The start is reported before it happens, so that a machine that loses its disk still learns of it.
        with contextlib.suppress(AgentError, OSError):
            parts.reporter.report(5.0, at_once=True)
        parts.committer.begin(attempt.attempt, attempt.resume_step)
        environ = {**for_job(self._environ(attempt)), **secrets}
        parts.pace.begin()
        try:
            outcome = self._run(attempt, settings.command, environ, settings.target, parts.format)
        finally:
            parts.pace.end(lost=(parts.status.get("step") or 0) > (parts.status.get("committed_step") or 0))
        if outcome.verdict is Verdict.OVERTAKEN:
            return outcome
        trouble = last_commit(parts)
        if trouble:
            return Outcome(Verdict.FAILED, f"the last checkpoint cannot be committed: {trouble}")
        committed, target = parts.status.get("committed_step"), self._target()
        if target is not None and committed is not None and committed >= target:
            return Outcome(Verdict.DONE, f"step {committed} is committed, the target is {target}")
        saved = committed is not None and (attempt.resume_step is None or committed > attempt.resume_step)
        return settle(outcome, saved=saved, output=parts.log.tail())

    def _target(self) -> Optional[int]:
        """
        Return the declared target, else the one that the newest checkpoint knows.
        """
        if self._settings.target is not None or self._settings.checkpoints.in_bucket:
            return self._settings.target
        return self._parts.patiently("read the newest checkpoint", self._parts.local.target)

    def _run(
        self,
        attempt: Attempt,
        command: str,
        environ: Mapping[str, str],
        target: Optional[int] = None,
        framework: Optional[Format] = None,
    ) -> Outcome:
        """
        Start a command and watch it to its end; *framework* is None for a command that trains nothing.
        """
        parts, layout = self._parts, self._settings.layout
        with contextlib.suppress(FileNotFoundError):
            layout.progress.unlink()
        self._progress, self._moved_at = Progress(), time.monotonic()
        self._trains = framework is not None
        parts.log.begin_tail()
        parts.local.forget()
        self._remember(
            incarnation=self._settings.incarnation,
            attempt=attempt.attempt,
            bundle=self._settings.bundle,
            boot=boot_id(),
            session=None,
            ended="",
        )
        try:
            job = Job(layout.root, command, layout.current, environ, parts.log.write)
        except OSError as error:
            return Outcome(Verdict.FAILED, f"the job cannot be started: {error}")
        try:
            # The session is a second way to find the job's processes; their mark is the first.
            with contextlib.suppress(OSError):
                self.record = records.save(layout, self.record.with_session(job.session))
            parts.status.time("spawned")
            return self._watch(job, attempt, target, framework)
        except Interrupted as order:
            parts.status.set(phase="stopping", message=order.ending.reason)
            job.ask_to_stop(self._settings.stop_signal, self._settings.grace)
            self._clear(job)
            # Before the commit, because the machine may be gone when that is over.
            self._look(attempt.resume_step)
            commit_in_time(parts)
            raise
        finally:
            self._clear(job)
            self._look(attempt.resume_step)
            parts.status.set(exit_code=job.exit_code())

    def _remember(self, **changes: Any) -> None:
        """
        Write state/job.json before what it records happens, waiting for a full disk to get room.
        """
        save = partial(records.save, self._settings.layout, self.record, **changes)
        self.record = self._parts.patiently("write state/job.json", save)

    def _watch(
        self, job: Job, attempt: Attempt, target: Optional[int], framework: Optional[Format]
    ) -> Outcome:
        reached_at: Optional[float] = None
        while True:
            code = job.exit_code()
            self._look(attempt.resume_step)
            committed = self._parts.status.get("committed_step")
            if code is not None:
                return judge(code, target, self._progress.step, committed, framework)
            if self._parts.orders.overtaken(attempt.attempt):
                return Outcome(Verdict.OVERTAKEN, "the gang has gone on")
            if self._stalled():
                job.ask_to_stop(self._settings.stop_signal, min(STALL_GRACE, self._settings.grace))
                return Outcome(Verdict.FAILED, f"stalled: nothing new for {self._settings.stall:g} s")
            if target is not None and committed is not None and committed >= target:
                reached_at = reached_at or time.monotonic()
                if time.monotonic() - reached_at > self._settings.grace:
                    job.ask_to_stop(self._settings.stop_signal, self._settings.grace)
                    return judge(0, target, None, committed)
            self._parts.orders.wait(TICK)

    def _look(self, resumed: Optional[int]) -> None:
        """
        Read the job's progress and note when it moved.

        For a job that reports nothing, its output and its newest checkpoint on disk tell the step.
        """
        if not self._trains:
            return
        now = read_progress(self._settings.layout.progress)
        if now.step is None:
            seen = (step_in(self._parts.log.tail(), self._parts.format.log_step), self._parts.local.newest)
            steps = [step for step in seen if step is not None and step > (resumed or 0)]
            now = replace(now, step=max(steps, default=None))
        if now.save_seconds is not None and now.save_seconds != self._progress.save_seconds:
            self._parts.pace.saved(now.save_seconds)
        if now.step is None or now == self._progress:
            return
        if self._progress.step is None:
            self._began(now.step, resumed)
        if now.step != self._progress.step:
            self._moved_at = time.monotonic()
            self._parts.status.time("first_step", again=self._progress.step is None)
            self._parts.status.set(progress_at=time.time())
        self._progress = now
        self._parts.status.set(step=now.step, loss=now.loss)

    def _began(self, step: int, resumed: Optional[int]) -> None:
        """
        Note the first step that the job reports, and say so when it has not gone on from its checkpoint.
        """
        self._parts.status.set(began_at=step)
        ignored = resumed is not None and step < resumed
        text = f"the job begins at step {step}, but step {resumed} is restored: "
        self._parts.status.trouble("resume", text + self._parts.local.why_ignored(resumed) if ignored else "")

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
                self._parts.log.settle()
                return

    def _environ(self, attempt: Attempt) -> Dict[str, str]:
        settings = self._settings
        step, every = attempt.resume_step, self._parts.pace.seconds()
        return dict(
            self._parts.environ,
            TPUCTL_ROOT=str(settings.layout.root),
            TPUCTL_JOB=f"{settings.deployment}/{settings.incarnation}/{attempt.attempt}",
            TPUCTL_ATTEMPT=str(attempt.attempt),
            TPUCTL_RESUME_STEP="" if step is None else str(step),
            TPUCTL_RESUME=self._restored.path,
            TPUCTL_PROGRESS_FILE=str(settings.layout.progress),
            TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
            TPUCTL_SAVE_EVERY_SECONDS="" if every is None else f"{every:.0f}",
            TPUCTL_SAVE_EVERY_FILE="" if every is None else str(self._parts.pace.file),
        )
