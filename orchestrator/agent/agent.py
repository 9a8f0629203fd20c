"""Run the agent on one machine: boot, attempts until the job is done or given up, last heartbeat."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from dataclasses import replace
from functools import partial
from typing import Callable, List, Optional

from orchestrator.agent.agreement.attempts import Attempt, next_attempt
from orchestrator.agent.agreement.race import still_saving, winner_of
from orchestrator.agent.attempt import attempt_record
from orchestrator.agent.attempt.finish import Finish
from orchestrator.agent.attempt.last_commit import last_commit
from orchestrator.agent.attempt.next_attempt import NextAttempt
from orchestrator.agent.attempt.peers import LAST_LOG_TIMEOUT
from orchestrator.agent.attempt.rescue import Uncommitted
from orchestrator.agent.attempt.run_attempt import AttemptRunner
from orchestrator.agent.checkpoints.bucket_checkpoints import retain
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd, Ending, EndingKind, obey_signals
from orchestrator.agent.machine.emulator_guard import check
from orchestrator.agent.machine.notice import NoticeWatch, is_preempted
from orchestrator.agent.machine.processes import boot_id, clear, start_time
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.agent.save_interval_tracker import HEARTBEATS
from orchestrator.agent.side_threads import Pause, Repeater, say
from orchestrator.agent.telemetry.event_files import BucketEvents
from orchestrator.contract.json_values import whole_number
from orchestrator.contract.machine_errors import AgentError, FencedError, UnsafeError
from orchestrator.contract.preemption_notice import SUCCESSOR_TIMEOUT
from orchestrator.contract.replacing import write_atomically

BEATEN = 20
"""Heartbeats after which a machine that lost its race ends; normally its controller deletes it before."""
_FINISHED = {kind.value: kind for kind in (EndingKind.DONE, EndingKind.UNCOMMITTED)}
# As agents of earlier releases have recorded it.
_FINISHED["unclaimed"] = EndingKind.UNCOMMITTED


class Agent:
    """Keeps the job running on this worker until it is done, given up, or the machine goes away."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._clock = context.clock
        self._settings = context.settings
        self._threads: List[Repeater] = []
        self._checked_at = self._reached_at = 0.0
        self._runner = AttemptRunner(context, attempt_record.load(context.settings.layout))
        self._next_attempt = NextAttempt(context)
        self._finish = Finish(context, self._runner)

    def run(self) -> int:
        """Run the agent; return its exit status: 0 if it has finished, 1 if cron must start it again."""
        self._begin()
        try:
            try:
                ending = self._run_attempts()
            except AgentMustEnd as must_end:
                ending = must_end.ending
            except UnsafeError as error:
                ending = Ending(EndingKind.GAVE_UP, str(error))
            self._leave(ending)
        except Exception as error:
            # Any exception: the job must not outlive its agent, and cron starts a new one.
            traceback.print_exc()
            clear(self._settings.layout.root, self._runner.record.living_session())
            self._context.heartbeat.set(message=f"the agent ended by {error!r}")
            with contextlib.suppress(AgentError, OSError):
                self._context.heartbeat_writer.report(5.0)
            return 1
        finally:
            with contextlib.suppress(OSError):
                # If this fails, the file is harmless: its start time fits no later process.
                self._settings.layout.pid.unlink()
        return 0

    def _begin(self) -> None:
        context, layout = self._context, self._settings.layout
        obey_signals(
            {
                signal.SIGTERM: self._noticed,
                signal.SIGUSR1: lambda: context.end_requests.end(EndingKind.ASKED, "asked to stop by tpuctl"),
                signal.SIGINT: lambda: context.end_requests.end(EndingKind.ASKED, "interrupted"),
            }
        )
        # After the signal handlers: a reader of this file may send a signal at once.
        with contextlib.suppress(OSError):
            write_atomically(layout.pid, f"{os.getpid()} {start_time(os.getpid())}\n")
        context.heartbeat.time("boot")
        writes = self._repeat(
            "heartbeat", context.heartbeat_writer.report, lambda: context.heartbeat.pause(self._clock.now())
        )
        context.heartbeat.urgent = writes.wake.set
        shipper = context.shipper
        logs = self._repeat("logs", self._ship, lambda: shipper.pause)

        def begun() -> None:
            shipper.hasten()
            logs.wake.set()

        context.log.begun = begun
        NoticeWatch(context.metadata, self._preempted).start()

    def _run_attempts(self) -> Ending:
        """Run attempts until the job has finished. Raise AgentMustEnd or UnsafeError for every other end."""
        context = self._context
        living = clear(self._settings.layout.root, self._runner.record.living_session())
        while living:
            context.heartbeat.warn("clear", f"processes {living} of an earlier job do not die")
            context.end_requests.wait(1.0)
            living = clear(self._settings.layout.root, None)
        context.heartbeat.warn("clear", "")
        check(context.environ)
        # Before joining the gang: a worker of a TPU that loses the race must not write the first attempt.
        self._win_race()
        attempt = self._first_attempt()
        if context.save_interval.seconds() is not None:
            self._repeat(
                "save interval", context.save_interval.write, HEARTBEATS * self._settings.heartbeat_interval
            )
        # Started only now: before the attempt is known these threads would act on an earlier one.
        self._reached_at = self._clock.monotonic()
        self._repeat("gang", self._poll_gang, self._settings.poll)
        if self._settings.bucket_timeout is not None:
            self._repeat(
                "bucket timeout", self._end_without_bucket, min(1.0, self._settings.bucket_timeout / 4)
            )
        self._repeat("event files", context.events.read_new, self._settings.poll)
        if not self._settings.worker:
            stored = BucketEvents(self._settings, context.bucket, context.events)
            self._repeat(
                "event files in the bucket", stored.read_new, HEARTBEATS * self._settings.heartbeat_interval
            )
        listing = self._settings.checkpoints.in_bucket
        usual = self._settings.heartbeat_interval if listing else self._settings.poll
        self._repeat("commit", self._commit, lambda: context.committer.pause or usual)
        self._repeat("caches", context.keeper.keep, self._settings.heartbeat_interval)
        uncommitted = Uncommitted(context, self._finish.rescue, lambda: self._runner.record.trains_since)
        self._repeat("uncommitted", uncommitted.observe, HEARTBEATS * self._settings.heartbeat_interval)
        while True:
            over = self._runner.record.over(attempt.attempt, self._settings.bundle)
            outcome = self._runner.conclude_finished(attempt) if over else self._runner.run(attempt)
            if outcome.kind in (JobOutcomeKind.DONE, JobOutcomeKind.UNCOMMITTED):
                ending = self._finish.ending(attempt, outcome)
                if ending is not None:
                    return ending
            if outcome.kind in (JobOutcomeKind.FAILED, JobOutcomeKind.EXCUSED):
                context.log.say(f"attempt {attempt.attempt} {outcome.kind.value}: {outcome.message}")
                attempt = self._next_attempt.after(attempt, outcome, counted=True)
            else:
                # Another worker's failure has stopped it; its reason is in the next attempt.
                context.heartbeat.set(failure_message="")
                attempt = context.patiently("read the gang's attempt", partial(self._later_attempt, attempt))

    def _win_race(self) -> None:
        """Return when this TPU has won its race; if another TPU has won, end as fenced."""
        context, settings = self._context, self._settings
        if not settings.round:
            return
        self._wait_for_earlier_save()
        began = self._clock.monotonic()
        while True:
            # Before any download: a loser is billed for as long as it runs.
            winner = context.patiently(
                "check who has won the race", lambda: winner_of(context.bucket, settings)
            )
            if winner == settings.incarnation:
                context.heartbeat.warn("race", "")
                return
            message = f"TPU #{winner} was first, this machine is not needed"
            # Wait first: an earlier machine could forge a claim for later races, which the
            # controller then replaces.
            if self._clock.monotonic() - began >= BEATEN * settings.heartbeat_interval:
                context.end_requests.end(EndingKind.FENCED, message)
            context.heartbeat.warn("race", message)
            context.end_requests.wait(settings.poll)

    def _wait_for_earlier_save(self) -> None:
        """Wait for the last save of the preceding TPU, from which the job will resume."""
        context, settings, began = self._context, self._settings, self._clock.monotonic()

        def earlier_saving() -> Optional[int]:
            return still_saving(context.bucket, settings, self._clock.now())

        while self._clock.monotonic() - began < SUCCESSOR_TIMEOUT:
            earlier = context.patiently("check whether the TPU before this one saves", earlier_saving)
            if earlier is None:
                break
            context.heartbeat.warn("waits", f"TPU #{earlier} is being preempted and still saves")
            context.end_requests.wait(min(1.0, settings.poll))
        context.heartbeat.warn("waits", "")

    def _first_attempt(self) -> Attempt:
        """
        Return the first attempt to run: the gang's, or a new one if this worker has already run that.

        Raise AgentMustEnd if the job has already ended.
        """
        context, record = self._context, self._runner.record
        context.patiently("read the gang", self._check_gang)
        if record.incarnation != self._settings.incarnation:
            record = attempt_record.AttemptRecord()
        # A machine that lost its disk has no state/job.json; its last heartbeat in the bucket shows how far it was.
        held = context.patiently("read the heartbeat", context.heartbeat_writer.before)
        last = max(record.attempt, _count(held.get("attempt")))
        self._runner.record = replace(record, attempts=max(record.attempts, _count(held.get("attempts"))))
        latest = context.patiently("read the gang", context.attempts.latest)
        if latest is None:
            newest, message = context.patiently("look for checkpoints", context.checkpoint_to_resume)
            if newest is None:
                self._finish.ended_earlier()
            first = next_attempt(
                None, newest, message or "no checkpoint yet", self._settings.worker, counted=False
            )
            return context.patiently("create the first attempt", lambda: context.attempts.create(first))
        # Another worker created it, and this worker has not run it yet.
        if latest.attempt > last:
            return latest
        # Finished before, but cron was not stopped: the agent was killed in between, or its report failed.
        if record.ended in _FINISHED and record.bundle == self._settings.bundle:
            self._write_heartbeat_again(latest)
            raise AgentMustEnd(Ending(_FINISHED[record.ended], "the job was finished already"))
        if record.over(latest.attempt, self._settings.bundle):
            return latest
        context.committer.begin(latest.attempt, latest.resume_step)
        # Commit a save that was finished before the agent was killed; the next attempt resumes from it.
        last_commit(context)
        killed = record.killed_on_this_boot()
        message = "the agent was killed" if killed else self._why_again(record)
        return self._next_attempt.after(latest, JobOutcome(JobOutcomeKind.FAILED, message), counted=killed)

    def _why_again(self, record: attempt_record.AttemptRecord) -> str:
        """Return why an attempt follows one whose agent has ended in order."""
        if record.bundle not in ("", self._settings.bundle):
            return "new code was installed"
        if record.boot and record.boot != boot_id():
            return "the machine was restarted"
        asked = record.ended == EndingKind.ASKED.value
        return "new settings were installed" if asked else "the job is started again on its machine"

    def _write_heartbeat_again(self, attempt: Attempt) -> None:
        """Report again the finished attempt and what it saved: other workers may still wait for it."""
        self._finish.rescue.recall()
        newest = self._context.patiently("look for checkpoints", self._context.checkpoints.newest)
        self._context.heartbeat.set(
            attempt=attempt.attempt,
            resumed_from=attempt.resume_step,
            attempts=self._runner.record.attempts,
            committed_step=newest.step if newest is not None else None,
        )

    def _later_attempt(self, attempt: Attempt) -> Attempt:
        latest = self._context.attempts.latest(10.0)
        if latest is None or latest.attempt <= attempt.attempt:
            raise AgentError(f"attempt {attempt.attempt + 1} was seen, and is not there now")
        return latest

    def _check_gang(self) -> None:
        """End the agent if a newer incarnation exists or the gang gave up. Raise AgentMustEnd."""
        newer = self._context.attempts.newer_incarnation(10.0)
        if newer is not None:
            self._context.end_requests.end(
                EndingKind.FENCED, f"TPU #{newer} exists, this machine is not needed any more"
            )
        verdict = self._context.attempts.verdict(10.0)
        if verdict is not None:
            self._context.end_requests.end(EndingKind.GAVE_UP, verdict)
        self._context.end_requests.check()

    def _end_without_bucket(self) -> None:
        """End a job without an answer of the bucket for the time of its timeout: another machine may have it."""
        silent = self._clock.monotonic() - self._reached_at
        if self._settings.bucket_timeout is not None and silent >= self._settings.bucket_timeout:
            message = f"the bucket was out of reach for {silent:.0f} s, so another machine may run the task"
            self._context.end_requests.end(EndingKind.CUT_OFF, message)

    def _poll_gang(self) -> None:
        asked = self._clock.monotonic()
        attempt = int(self._context.heartbeat.get("attempt"))
        # 0 before the first attempt, which nothing can overtake.
        if attempt and self._context.attempts.overtaken(attempt, 10.0):
            self._context.end_requests.saw_attempt(attempt + 1)
        # Listing costs more than reading, so newer incarnations are looked for only once per heartbeat.
        if self._clock.monotonic() - self._checked_at >= self._settings.heartbeat_interval:
            with contextlib.suppress(AgentMustEnd):
                self._check_gang()
            self._checked_at = self._clock.monotonic()
        if attempt:
            # From the question on, and not from its answer: what it says was true at some time in between.
            self._reached_at = asked

    def _commit(self) -> None:
        context = self._context
        try:
            if context.committer.commit() and self._settings.worker == 0:
                retain(self._settings, context.bucket, context.checkpoints, context.attempts)
        except FencedError as error:
            say(str(error))

    def _ship(self) -> None:
        self._context.shipper.ship_new()
        if self._context.log.message:
            raise OSError(self._context.log.message)

    def _noticed(self) -> None:
        self._context.heartbeat.set(notice=True)
        self._context.end_requests.end(EndingKind.NOTICE, "the machine is being taken away")

    def _preempted(self) -> None:
        # A signal alone may mean a reboot, after which this machine continues; a preempted one does not.
        self._context.heartbeat.set(preempted=True)
        self._noticed()

    def _repeat(self, name: str, step: Callable[[], None], seconds: Pause) -> Repeater:
        thread = Repeater(name, step, seconds, self._context.heartbeat.warn)
        self._threads.append(thread)
        thread.start()
        return thread

    def _leave(self, ending: Ending) -> None:
        """Write how it ended to disk, log and heartbeat; then stop cron, if this ending requires it."""
        context, layout = self._context, self._settings.layout
        with contextlib.suppress(OSError):
            # First, so that an agent killed in the lines below does not count as crashed.
            attempt_record.save(layout, self._runner.record, ended=ending.kind.value)
        if ending.kind is EndingKind.NOTICE and not context.heartbeat.get("preempted"):
            context.heartbeat.set(preempted=is_preempted(context.metadata))
        self._finish.before(ending)
        context.log.say(f"{ending.kind.in_log}: {ending.message}")
        for thread in self._threads:
            # From here on no other thread may change the report.
            thread.end()
        # Before the report: once the controller sees the phase it may delete the machine and its log.
        with contextlib.suppress(AgentError, OSError):
            context.shipper.ship(LAST_LOG_TIMEOUT)
        context.heartbeat.set(phase=ending.kind.phase, message=ending.message)
        reported = self._write_last_heartbeat()
        # If a done or failed job could not be reported, cron must start the agent again, which repeats the
        # report: otherwise the machine stays billed.
        if ending.kind.holds and (reported or not ending.kind.must_be_reported):
            try:
                write_atomically(layout.stop, ending.message + "\n")
            except OSError as error:
                say(f"state/stop cannot be written, cron will start the agent again: {error}")

    def _write_last_heartbeat(self) -> bool:
        for _try in range(4):
            try:
                self._context.heartbeat_writer.report(15.0)
            except (AgentError, OSError) as error:
                say(f"last report: {error}")
            else:
                return True
        return False


def _count(value: object) -> int:
    """Return *value* if it is a positive integer, else 0; it comes from a foreign or earlier report."""
    return max(0, whole_number(value) or 0)
