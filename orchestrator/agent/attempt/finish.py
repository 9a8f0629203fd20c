"""End the agent after its job, once everything that was trained is in the bucket."""

from __future__ import annotations

import contextlib
import threading
from typing import Optional

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.attempt.peers import all_ended, first_ended
from orchestrator.agent.attempt.rescue import Rescue
from orchestrator.agent.attempt.run_attempt import AttemptRunner
from orchestrator.agent.checkpoints.bucket_checkpoints import retain
from orchestrator.agent.checkpoints.uncommitted import BUCKET, stray_in
from orchestrator.agent.cloud.storage import TIMEOUT
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd, Ending, EndingKind
from orchestrator.agent.outcome import JobOutcome
from orchestrator.contract.bucket.completeness import CompleteCheckpoint
from orchestrator.contract.bucket.uncommitted_manifest import RescueMoment, UncommittedManifest
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import Phase
from orchestrator.contract.preemption_notice import RESCUE

LEAST = 2.0
"""Seconds that the rescue of files gets even if the machine should be gone: it may get more than promised."""
MAX_RESCUE = 3600.0
"""Seconds to upload the files of a failed job: no checkpoint may hold them, but the machine is billed."""
TICK = 0.2
"""Seconds between two checks of the clock while a thread works."""


class Finish:
    """Decides how a finished job ends, after all workers have ended and their files are in the bucket."""

    def __init__(self, context: AgentContext, runner: AttemptRunner) -> None:
        self._context = context
        self._runner = runner
        self.rescue = Rescue(context)

    def ending(self, attempt: Attempt, outcome: JobOutcome) -> Optional[Ending]:
        """
        Return the ending, None if the gang continues instead. Raise AgentMustEnd.

        Exit status 0 alone is not enough: the job is done only with a checkpoint that has a part of every
        worker.
        """
        context, since = self._context, self._runner.record.trains_since
        if context.settings.worker and context.committer.saved_nothing():
            # Worker 0 looks for a complete checkpoint once this worker reports its end, so commit our part first.
            if not first_ended(context, attempt):
                return None
            context.patiently("commit an empty part", context.committer.follow_first)
        # Only after every worker has committed its part does a list of the bucket show whether it is complete.
        if not all_ended(context, attempt, outcome.message):
            return None
        newest = context.patiently("look for checkpoints", self._committed)
        committed = newest.step if newest is not None else None
        if newest is not None and context.heartbeat.get("committed_step") is None:
            # If the job writes to the bucket itself, another worker may have made the last commit.
            context.heartbeat.set(committed_step=newest.step)
        found = context.patiently("look for files", lambda: self.rescue.found(committed, since))
        if newest is not None:
            self._retain()
        message = f"{outcome.message}{self._unsaved_text(newest)}"
        if newest is not None and not found[0]:
            return Ending(EndingKind.DONE, message)
        context.heartbeat.set(phase=Phase.ENDED, message=f"{message}; its files are brought to the bucket")
        if newest is None and not found[0] and not context.settings.worker:
            name = context.patiently("check the bucket", lambda: stray_in(context.bucket, since))
            context.heartbeat.set(uncommitted=name, uncommitted_place=BUCKET if name else "")
        rescued = self.rescue.after_the_end(attempt, committed, found)
        if newest is not None:
            return Ending(EndingKind.DONE, f"{message}; {in_words(rescued)} beside its checkpoints")
        return Ending(EndingKind.UNCOMMITTED, f"{message}; no checkpoint was saved, {in_words(rescued)}")

    def _unsaved_text(self, newest: Optional[CompleteCheckpoint]) -> str:
        """Return how much of the training the *newest* checkpoint lacks, "" for nothing."""
        step = self._context.heartbeat.get("step")
        if newest is None or step is None or self._context.heartbeat.get("committed_counted"):
            return ""
        # A program that counts its steps from 0 saves its last one under a number less.
        behind = step - newest.step
        return (
            f"; the program saved none of its last {behind} steps: the model is step {newest.step}"
            if behind > 1
            else ""
        )

    def _retain(self) -> None:
        # The last saves were committed outside of the loop that does this.
        context = self._context
        if not context.settings.worker:
            with contextlib.suppress(AgentError, OSError):
                retain(context.settings, context.bucket, context.checkpoints, context.attempts)

    def ended_earlier(self) -> None:
        """Raise AgentMustEnd if an earlier machine has uploaded the uncommitted files of this same job."""
        earlier = self._context.patiently("look for uncommitted files", self.rescue.earlier)
        mine = next((one for one in earlier if one.worker == self._context.settings.worker), None)
        if mine is not None:
            self.rescue.report(mine)
            message = (
                f"the job had ended on TPU #{mine.incarnation}; no checkpoint was saved, {in_words(mine)}"
            )
            raise AgentMustEnd(Ending(EndingKind.UNCOMMITTED, message))

    def before(self, ending: Ending) -> None:
        """Upload what no commit contains before the last heartbeat, for as long as the machine exists."""
        record, clock, end_requests = self._runner.record, self._context.clock, self._context.end_requests
        if ending.kind not in (EndingKind.NOTICE, EndingKind.GAVE_UP) or not record.trains_since:
            return
        notice = ending.kind is EndingKind.NOTICE
        committed = self._context.heartbeat.get("committed_step")
        if not notice:
            # The report's step may be outdated by another worker's commit, so spend up to 10 s on a fresh answer.
            with contextlib.suppress(AgentError, OSError):
                newest = self._context.checkpoints.newest(10.0)
                committed = newest.step if newest is not None else None
                if committed is not None:
                    # The last attempt may have begun from an older one; the next start is from the newest.
                    self._context.heartbeat.set_newest(committed, aside_message="")
        gone_by = (end_requests.ended_at or clock.monotonic()) + RESCUE
        seconds = max(LEAST, gone_by - clock.monotonic()) if notice else MAX_RESCUE
        moment = RescueMoment.NOTICE if notice else RescueMoment.FAILED
        # In a thread, because a call to the bucket cannot be interrupted and the machine may vanish at any time.
        work = threading.Thread(
            target=self.rescue.in_time, name="rescue", daemon=True,
            args=(moment, record.attempt, committed, record.trains_since, seconds),
        )  # fmt: skip
        work.start()
        end = clock.monotonic() + seconds
        noticed_at: Optional[float] = None
        while work.is_alive() and clock.monotonic() < end:
            work.join(TICK)
            if not notice and noticed_at is None and self._context.heartbeat.get("notice"):
                # Preempted while giving up: the remaining time is now that of a notice.
                noticed_at = clock.monotonic()
                end = min(end, noticed_at + RESCUE)

    def _committed(self) -> Optional[CompleteCheckpoint]:
        """Return the checkpoint with the training's result; outputs count only if they are of this incarnation."""
        context, number = self._context, self._context.settings.incarnation
        if not context.format.at_end or context.settings.checkpoints.in_bucket:
            return context.checkpoints.newest(TIMEOUT)
        return context.checkpoints.completed(number, number)


def in_words(rescued: UncommittedManifest) -> str:
    """Return a sentence part about what one worker has uploaded."""
    if not rescued.files:
        return "no file was found"
    count = len(rescued.files)
    return "1 of its files is in unclaimed/" if count == 1 else f"{count} of its files are in unclaimed/"
