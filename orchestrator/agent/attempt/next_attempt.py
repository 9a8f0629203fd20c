"""Create the next attempt after one has ended, join another worker's, or give up after too many failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Tuple

from orchestrator.agent.agreement.attempts import Attempt, next_attempt
from orchestrator.agent.attempt.crash_loop import go_back, newest_but, put_back, should_go_back
from orchestrator.agent.attempt.peers import silent_peer
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd, Ending, EndingKind
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.contract.backoff import Backoff
from orchestrator.contract.bucket.completeness import CompleteCheckpoint, made_progress
from orchestrator.contract.phase import Phase

SUSPECT_TIMEOUT = 10.0
"""Seconds for worker 0's decision to come through the bucket; without it the start goes on as it is."""


class NextAttempt:
    """Creates the attempt after a local one has ended, or joins the one that another worker has created."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._settings = context.settings

    def after(self, attempt: Attempt, outcome: JobOutcome, counted: bool) -> Attempt:
        """
        Return the next attempt: the gang's if another worker created it, else a new one after a pause.

        Raise AgentMustEnd when the gang gives up.
        """
        context = self._context
        if counted:
            context.heartbeat.set(failure_message=outcome.message, failure_line=outcome.line)
        latest = context.patiently("read the gang", context.attempts.latest)
        # All workers get here when a job ends. The first one creates the attempt and the others join it.
        if latest is not None and latest.attempt > attempt.attempt:
            return latest
        if not counted:
            context.patiently("put suspects back", lambda: put_back(context.checkpoints, attempt))
        wanted = self._wanted(attempt, outcome, counted)
        if counted:
            lonely = self._give_up_after(attempt, wanted, outcome)
            # No job runs in the pause; the checkpoint is what comes next.
            context.heartbeat.set(
                phase=Phase.RESTORE, rate=None, failures=wanted.failures, message=lonely or outcome.message
            )
            tries = max(wanted.failures, wanted.excused)
            self._pause(attempt, Backoff(1.0, self._settings.longest_pause).after(tries))
            wanted = self._wanted(attempt, outcome, counted)
            wanted = self._without_the_newest(attempt, wanted)
        return context.patiently("create the next attempt", lambda: context.attempts.create(wanted))

    def _wanted(self, attempt: Attempt, outcome: JobOutcome, counted: bool) -> Attempt:
        """Return the next attempt according to the bucket's present state."""
        newest, chosen_by = self._newest(attempt if counted else None)
        message = f"{outcome.message}; {chosen_by}" if chosen_by else outcome.message
        excused = outcome.kind is JobOutcomeKind.EXCUSED
        wanted = next_attempt(attempt, newest, message, self._settings.worker, counted, excused, outcome.code)
        # That the chosen one is complete is no news.
        passed_over = chosen_by[len(newest.message) :].lstrip("; ") if newest is not None else chosen_by
        if not counted:
            return wanted
        return replace(wanted, ended=outcome.message, ended_line=outcome.line, passed_over=passed_over)

    def _newest(self, attempt: Optional[Attempt]) -> Tuple[Optional[CompleteCheckpoint], str]:
        """Return the newest checkpoint to resume from, and why; a suspect of *attempt* only after new progress."""
        context = self._context
        newest, message = context.patiently("look for checkpoints", context.checkpoint_to_resume)
        if attempt is None or newest is None or newest.incarnation >= 0:
            return newest, message
        if made_progress(newest, attempt.reached):
            return newest, message
        # Checkpoints that the job itself wrote to the bucket are never renamed, so skip suspects here.
        older = context.patiently(
            "look for older checkpoints",
            lambda: newest_but(context.checkpoints.complete(), attempt.suspects),
        )
        return older, older.message if older is not None else ""

    def _give_up_after(self, attempt: Attempt, wanted: Attempt, outcome: JobOutcome) -> str:
        """
        Give up after too many failures; if a worker is silent, return a text about it instead.

        Raise AgentMustEnd after giving up. A silent worker may be the cause, so the gang then continues.
        """
        if wanted.failures < self._settings.failures:
            return ""
        # Without an exit code the job never ran, so a missing worker cannot have made it fail.
        missing = None if outcome.code is None else silent_peer(self._context, attempt.attempt)
        if missing is not None:
            return f"worker {missing} is silent; the job is tried until its machine is replaced"
        self._context.patiently("put suspects back", lambda: put_back(self._context.checkpoints, wanted))
        older = ", also from an older checkpoint" if wanted.suspects else ""
        count = f"{wanted.failures} attempts in a row without progress{older}; the last: "
        text = f"{count if wanted.failures > 1 else ''}{outcome.message}"
        self._context.patiently("give up", lambda: self._context.attempts.give_up(text))
        raise AgentMustEnd(Ending(EndingKind.GAVE_UP, text))

    def _without_the_newest(self, attempt: Attempt, wanted: Attempt) -> Attempt:
        """
        Resume from the checkpoint before the newest one if the newest one seems to make the job fail.

        Worker 0 decides; the others give it SUSPECT_TIMEOUT seconds, so that there is one decision.
        """
        context = self._context
        newest, _message = self._newest(attempt)
        if newest is None or not should_go_back(attempt, wanted, newest):
            return wanted
        # Two workers that rename the same manifests at once would overwrite each other's copies.
        if self._settings.worker:
            self._pause(attempt, SUSPECT_TIMEOUT)
            return wanted
        newer = context.patiently("look for a newer incarnation", context.attempts.newer_incarnation)
        if newer is not None:
            # A replacement may be restoring this checkpoint now, so it must not be renamed.
            raise AgentMustEnd(Ending(EndingKind.FENCED, f"TPU #{newer} exists, this machine is not needed"))
        return context.patiently(
            "go one checkpoint back", lambda: go_back(context.checkpoints, wanted, newest)
        )

    def _pause(self, attempt: Attempt, seconds: float) -> None:
        clock = self._context.clock
        end = clock.monotonic() + seconds
        # Stop waiting as soon as another worker has created the next attempt.
        while clock.monotonic() < end and not self._context.end_requests.overtaken(attempt.attempt):
            self._context.end_requests.wait(min(0.5, max(0.0, end - clock.monotonic())))
