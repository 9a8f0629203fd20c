"""Run one attempt on this worker: restore, set up, start, watch, commit."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Mapping, Optional, TypeVar

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.attempt import attempt_record
from orchestrator.agent.attempt.attempt_record import AttemptRecord
from orchestrator.agent.attempt.crash_loop import aside_text
from orchestrator.agent.attempt.data import download_data
from orchestrator.agent.attempt.job_process import JobProcess, job_environ
from orchestrator.agent.attempt.last_commit import commit_in_time, conclude
from orchestrator.agent.attempt.prepare import (
    fetch_code,
    install_wanted_python,
    pull_image,
    restore_checkpoint,
)
from orchestrator.agent.attempt.progress_tracker import ProgressTracker
from orchestrator.agent.checkpoints.restore import NOTHING
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd, EndingKind
from orchestrator.agent.machine.accelerator import obstacles
from orchestrator.agent.machine.docker import ended
from orchestrator.agent.machine.emulator_guard import for_job, for_setup
from orchestrator.agent.machine.processes import boot_id
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind, UserCommand, outcome_of, with_last_line
from orchestrator.agent.side_threads import SideThread, say
from orchestrator.contract.agent_lines import attempt_text, resume_text
from orchestrator.contract.formats.base import Format
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import Phase
from orchestrator.contract.replacing import write_atomically

T = TypeVar("T")
MESSAGE = 500
TICK = 0.1
"""Seconds between two checks of the job: a job that ends is committed at once, and a check costs nothing."""
STALL_GRACE = 5.0
"""Seconds that a job which hangs, or whose machine is cut off, gets to save: it will hardly use them."""
SUSPICIOUS_FAILURES = 2
"""Consecutive failed attempts after which packages restored from an earlier machine are suspected."""


class AttemptRunner:
    """Runs attempts; *record* is the state of the last one, as in state/job.json."""

    def __init__(self, context: AgentContext, record: AttemptRecord) -> None:
        self._context = context
        self._clock = context.clock
        self._settings = context.settings
        self.record = record
        self._progress = ProgressTracker(context)
        self._restored = NOTHING

    def run(self, attempt: Attempt) -> JobOutcome:
        """
        Run one attempt of the job to its end; no process of the job is left when this returns or raises.

        Raise AgentMustEnd after the job was stopped within its grace and the last commit was tried.
        """
        context = self._context
        context.committer.end()
        context.heartbeat.close_attempt()
        context.heartbeat.set_newest(
            attempt.resume_step,
            phase=Phase.RESTORE,
            attempt=attempt.attempt,
            attempt_message=attempt.passed_over if attempt.ended else attempt.message,
            ended_message=attempt.ended,
            ended_failures=attempt.failures,
            failure_line=attempt.ended_line if attempt.failures else "",
            aside_message=aside_text(attempt, self._settings.checkpoints.folder),
            failures=attempt.failures,
            # Another worker's failure is only in the attempt.
            failure_message=(context.heartbeat.get("failure_message") or attempt.ended or attempt.message)
            if attempt.failures
            else "",
            resumed_from=attempt.resume_step,
            committed_steps=[],
            step=None,
            from_step=None,
            began_step=None,
            ignored_message="",
            loss=None,
            loss_step=None,
            rate=None,
            reported_target_steps=None,
            progress_from="",
            message="",
        )
        target = self._settings.target
        if self._target_reached(attempt):
            prove = partial(context.checkpoints.proven, attempt.resume_step, attempt.resume_incarnation)
            if context.patiently("read the manifest", prove):
                return JobOutcome(
                    JobOutcomeKind.DONE,
                    f"step {attempt.resume_step} is saved in the bucket, the target is {target}",
                )
        return self._prepare(attempt) or self._train(attempt)

    def _target_reached(self, attempt: Attempt) -> bool:
        target = self._settings.target
        return target is not None and attempt.resume_step is not None and attempt.resume_step >= target

    def _prepare(self, attempt: Attempt) -> Optional[JobOutcome]:
        """Restore the checkpoint and install code, data and packages; return None when the job can start."""
        restore = SideThread("restore", partial(restore_checkpoint, self._context, attempt))
        # Setup needs the code but not the checkpoint, and both take minutes, so they overlap.
        self._context.patiently("fetch the bundle", partial(fetch_code, self._context))
        if (
            attempt.failures == SUSPICIOUS_FAILURES
            and attempt.code != 0
            and self._context.caches.has_restored_packages()
        ):
            self._discard_restored_packages("the job has failed twice")
        image = SideThread("image", partial(pull_image, self._context))
        # Without `job.image` the key of the caches is known already, so their download starts now.
        caches = (
            SideThread("caches", self._context.caches.restore) if self._context.container is None else None
        )
        failed = download_data(self._context)
        failed = self._wait(image) or failed
        if failed is None or caches is not None:
            self._wait(caches or SideThread("caches", self._context.caches.restore))
        failed = failed or self._install(attempt)
        if failed is not None:
            # The restore moves files, so it must end before another attempt starts.
            try:
                self._wait(restore)
            except AgentMustEnd:
                raise
            except Exception as error:  # The attempt has already failed for another reason.
                self._context.heartbeat.warn("restore", repr(error))
            return failed
        self._context.heartbeat.set(phase=Phase.RESTORE, message="")
        self._restored, outcome = self._wait(restore)
        self._context.heartbeat.set(committed_counted=self._restored.counted)
        return outcome

    def _install(self, attempt: Attempt) -> Optional[JobOutcome]:
        """Install what the job needs; if that fails with packages of an earlier machine, retry without them."""
        failed = install_wanted_python(self._context) or self._set_up(attempt)
        if (
            failed is None
            or failed.kind is not JobOutcomeKind.FAILED
            or not self._context.caches.has_restored_packages()
        ):
            return failed
        self._discard_restored_packages(failed.message)
        return install_wanted_python(self._context) or self._set_up(attempt)

    def _discard_restored_packages(self, message: str) -> None:
        note = f"{message}, with the Python packages of an earlier machine: they are removed, and setup runs again"
        say(note)
        self._context.log.say(note)
        self._context.patiently("remove the packages", self._context.caches.discard)

    def _wait(self, thread: SideThread[T]) -> T:
        """Return the thread's result or raise its exception; raise AgentMustEnd as soon as the agent must end."""
        while thread.is_alive():
            # Not a pause: most threads are over in a moment, and the job waits for each.
            thread.join(TICK)
            self._context.end_requests.check()
        return thread.result()

    def _set_up(self, attempt: Attempt) -> Optional[JobOutcome]:
        settings = self._settings
        mark = settings.layout.setup_done(settings.bundle)
        container = self._context.container
        digest = hashlib.sha256(settings.setup.encode("utf-8", "surrogateescape")).hexdigest()
        if not settings.setup or (_text_of(mark) == digest and (container is None or container.is_set_up())):
            return None
        self._context.heartbeat.set(phase=Phase.SETUP, message="")
        self._context.heartbeat.time("setup_began")
        self._context.log.say(f"setup runs, for code {settings.bundle[:12]}")
        outcome = self._run_command(
            attempt, settings.setup, for_setup(job_environ(self._context, attempt, self._restored.path))
        )
        if outcome.kind is JobOutcomeKind.DONE:
            self._context.heartbeat.time("setup_done")
            # Written after the setup: a kill in between runs the setup again, which it must tolerate.
            self._context.patiently("write the mark of the setup", lambda: write_atomically(mark, digest))
            return None
        found = with_last_line(outcome, outcome.code or 0, self._context.log.tail())
        # Without the code: only a job that ran can have failed for want of another worker.
        return replace(found, code=None)

    def _train(self, attempt: Attempt) -> JobOutcome:
        context, settings = self._context, self._settings
        # Read at each start, so that a new version of a secret applies without a push.
        secrets = context.patiently("read the secrets", context.secrets.read)
        number = f"{'save' if self._restored.counted else 'step'} {attempt.resume_step}"
        origin = "start from the beginning" if attempt.resume_step is None else f"resume from {number}"
        context.log.say(
            attempt_text(settings.incarnation, settings.worker, attempt.attempt, origin, attempt.message)
        )
        for note in self._restored.notes:
            say(note)
            context.log.say(note)
        if self._restored.path:
            context.log.say(resume_text(self._restored.path, settings.checkpoints.folder))
        found = obstacles()
        for note in found:
            say(note)
            context.log.say(note)
        attempts = self.record.attempts + 1
        context.heartbeat.set(phase=Phase.RUN, attempts=attempts, message="; ".join(found)[:MESSAGE])
        self._save_record(attempts=attempts)
        # Reported before the start: a machine that loses its disk learns from the bucket that the job had started.
        with contextlib.suppress(AgentError, OSError):
            context.heartbeat_writer.report(5.0, at_once=True)
        # Beyond the target the count is only a guess: with a proven step the job would be done.
        proven = not self._target_reached(attempt)
        # A skipped checkpoint is still in the job's own bucket and must not count as progress.
        floor = attempt.reached if settings.checkpoints.in_bucket else attempt.resume_step
        context.committer.begin(attempt.attempt, floor, proven=proven, starting=True)
        environ = {**for_job(job_environ(context, attempt, self._restored.path)), **secrets}
        context.save_interval.begin()
        try:
            outcome = self._run_command(attempt, settings.command, environ, settings.target, context.format)
        finally:
            context.save_interval.end(
                lost=(context.heartbeat.get("step") or 0) > (context.heartbeat.get("committed_step") or 0)
            )
        if outcome.kind is JobOutcomeKind.OVERTAKEN:
            return outcome
        if outcome.code == 0:
            # Before the commit, which may take long: an agent killed in it must not run the finished job again.
            self._save_record(finished=outcome.message, reached=self._progress.reached)
        return conclude(context, attempt, outcome)

    def conclude_finished(self, attempt: Attempt) -> JobOutcome:
        """Commit and judge a job that exited with status 0 under an earlier agent, without running it again."""
        heartbeat, step = self._context.heartbeat, attempt.resume_step
        heartbeat.set(attempt=attempt.attempt, resumed_from=step, committed_step=step, exit_code=0)
        self._context.committer.begin(attempt.attempt, step, proven=not self._target_reached(attempt))
        target, framework = self._settings.target, self._context.format
        outcome = outcome_of(0, target, self.record.reached, self._context.committer.proven, framework)
        return conclude(self._context, attempt, outcome)

    def _run_command(
        self,
        attempt: Attempt,
        command: str,
        environ: Mapping[str, str],
        target: Optional[int] = None,
        framework: Optional[Format] = None,
    ) -> JobOutcome:
        """Run a command to its end; *framework* is None for `job.setup`, which does not train."""
        context, layout = self._context, self._settings.layout
        what = UserCommand.SETUP if framework is None else UserCommand.JOB
        with contextlib.suppress(FileNotFoundError):
            # The file is from the start before; its step would be taken for the present one.
            layout.progress.unlink()
        self._progress.begin(trains=framework is not None)
        context.log.begin_tail()
        if framework is not None:
            # The job will write there from now on. During `job.setup` the restore still uses that folder.
            context.local.forget()
        self._save_record(
            incarnation=self._settings.incarnation,
            attempt=attempt.attempt,
            bundle=self._settings.bundle,
            boot=boot_id(),
            session=None,
            ended="",
            finished="",
            trains_since=self.record.trains_since or (0.0 if framework is None else self._clock.now()),
        )
        try:
            argv = ["bash", "-c", command]
            if context.container is not None:
                argv = context.container.argv(command, environ, setup=framework is None)
            job = JobProcess(layout.root, argv, layout.current, environ, self._progress.take_output)
        except OSError as error:
            return JobOutcome(JobOutcomeKind.FAILED, f"{what.value} cannot be started: {error}")
        try:
            # If this fails, the mark in their environment still identifies the processes.
            with contextlib.suppress(OSError):
                self.record = attempt_record.save(layout, self.record.with_session(job.session))
            if framework is not None:
                context.heartbeat.time("spawned")
            outcome = self._wait_for_end(job, attempt, target, framework, what)
            is_set_up = framework is None and outcome.kind is JobOutcomeKind.DONE
            return (context.container.keep_setup() if is_set_up and context.container else None) or outcome
        except AgentMustEnd as must_end:
            context.heartbeat.set(phase=Phase.STOPPING, message=must_end.ending.message)
            grace = self._settings.grace
            # What it would save now cannot be brought to the bucket, and its time is over.
            cut_off = must_end.ending.kind is EndingKind.CUT_OFF
            self._stop(job, min(STALL_GRACE, grace) if cut_off else grace)
            self._clear(job)
            if framework is not None and job.exit_code() == 0:
                context.local.rest(in_order=True)
            # Before the commit, since the machine may be gone when that ends.
            self._progress.observe(attempt.resume_step, last=True)
            commit_in_time(context)
            raise
        finally:
            self._clear(job)
            self._progress.observe(attempt.resume_step, last=True)
            context.heartbeat.set(exit_code=job.exit_code())

    def _save_record(self, **changes: Any) -> None:
        """Write state/job.json before the event that it records; wait while the disk is full."""
        save = partial(attempt_record.save, self._settings.layout, self.record, **changes)
        self.record = self._context.patiently("write state/job.json", save)

    def _wait_for_end(
        self,
        job: JobProcess,
        attempt: Attempt,
        target: Optional[int],
        framework: Optional[Format],
        what: UserCommand,
    ) -> JobOutcome:
        reached_at: Optional[float] = None
        while True:
            code = job.exit_code()
            if code is not None and self._context.container is not None:
                code = ended(code)
            self._progress.observe(attempt.resume_step, last=code is not None)
            self._forget_failures(attempt)
            committed = self._context.committer.proven
            if code is not None:
                # The last save may reveal the framework, and thus the meaning of the exit status.
                with contextlib.suppress(OSError):
                    self._context.local.checkpoints()
                return outcome_of(code, target, self._progress.reached, committed, framework, what)
            if self._context.end_requests.overtaken(attempt.attempt):
                return JobOutcome(JobOutcomeKind.OVERTAKEN, "the gang has gone on")
            if self._stalled():
                self._stop(job, min(STALL_GRACE, self._settings.grace))
                return JobOutcome(
                    JobOutcomeKind.FAILED, f"stalled: nothing new for {self._settings.stall:g} s"
                )
            if target is not None and committed is not None and committed >= target:
                if reached_at is None:
                    reached_at = self._clock.monotonic()
                    time_to_end = f"the job has {self._settings.grace:g} s to end by itself"
                    self._context.log.say(
                        f"step {committed} is saved in the bucket, the target is {target}: {time_to_end}"
                    )
                if self._clock.monotonic() - reached_at > self._settings.grace:
                    self._stop(job, self._settings.grace)
                    return outcome_of(0, target, None, committed)
            self._context.end_requests.wait(TICK)

    def _forget_failures(self, attempt: Attempt) -> None:
        """Report no failures any more once the job has made progress."""
        heartbeat = self._context.heartbeat
        committed, reached = heartbeat.get("committed_step"), attempt.reached
        if heartbeat.get("failures") and committed is not None and (reached is None or committed > reached):
            heartbeat.set(failures=0, failure_message="")

    def _stalled(self) -> bool:
        committed_at = self._context.heartbeat.get("committed_at") or 0.0
        if not self._settings.stall or self._clock.now() - committed_at < self._settings.stall:
            return False
        moved_at = max(self._progress.moved_at, self._context.log.last_at)
        return self._clock.monotonic() - moved_at > self._settings.stall

    def _stop(self, job: JobProcess, timeout: float) -> None:
        self._context.local.asked_to_stop()
        if not job.ask_to_stop(self._settings.stop_signal, timeout):
            self._context.local.has_not_stopped()

    def _clear(self, job: JobProcess) -> None:
        """Wait until no process of the job is left: a second job beside it would overwrite its files."""
        while True:
            living = job.clear()
            self._context.heartbeat.warn("clear", f"processes {living} do not die" if living else "")
            if not living:
                self._context.local.rest()
                self._context.log.settle()
                return


def _text_of(file: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return file.read_text()
    return ""
