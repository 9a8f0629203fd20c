"""Choose the attempt that follows one: another worker's, a new one, or none after too many failures."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Iterable, Optional, Sequence, Tuple

from orchestrator.agent.agreement.attempts import Attempt, next_attempt
from orchestrator.agent.attempt.peers import silent_peer
from orchestrator.agent.checkpoints.catalogue import Catalogue
from orchestrator.agent.interrupts import Ending, EndingKind, JobInterrupted
from orchestrator.agent.outcome import JobOutcome, JobVerdict
from orchestrator.agent.parts import Parts
from orchestrator.contract.backoff import Backoff
from orchestrator.contract.bucket.completeness import Checkpoint, made_progress

BREAKER_PATIENCE = 10.0


class Advance:
    """Creates the attempt after a local one has ended, or joins the one that another worker has created."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings

    def after(self, attempt: Attempt, outcome: JobOutcome, counted: bool) -> Attempt:
        """
        Return the next attempt: the gang's if another worker created it, else a new one after a pause.

        Raise JobInterrupted when the gang gives up.
        """
        parts = self._parts
        latest = parts.patiently("read the gang", parts.attempts.latest)
        # All workers get here when a job ends. The first one creates the attempt and the others join it.
        if latest is not None and latest.attempt > attempt.attempt:
            return latest
        if not counted:
            parts.patiently("put suspects back", lambda: acquit(parts.catalogue, attempt))
        wanted = self._wanted(attempt, outcome, counted)
        if counted:
            lonely = self._give_up_after(attempt, wanted, outcome)
            parts.status.set(failures=wanted.failures, message=lonely or outcome.reason)
            tries = max(wanted.failures, wanted.excused)
            self._pause(attempt, Backoff(1.0, self._settings.longest_pause).after(tries))
            wanted = self._wanted(attempt, outcome, counted)
            wanted = self._without_the_newest(attempt, wanted)
        return parts.patiently("create the next attempt", lambda: parts.attempts.create(wanted))

    def _wanted(self, attempt: Attempt, outcome: JobOutcome, counted: bool) -> Attempt:
        """Return the next attempt according to the bucket's present state."""
        newest, why = self._newest(attempt if counted else None)
        reason = f"{why}; before: {outcome.reason}" if why else outcome.reason
        excused = outcome.verdict is JobVerdict.EXCUSED
        return next_attempt(attempt, newest, reason, self._settings.worker, counted, excused, outcome.code)

    def _newest(self, attempt: Optional[Attempt]) -> Tuple[Optional[Checkpoint], str]:
        """Return the newest checkpoint to resume from, and why; a suspect of *attempt* only after new progress."""
        parts = self._parts
        newest, why = parts.patiently("look for checkpoints", parts.checkpoint_to_resume)
        if attempt is None or newest is None or newest.incarnation >= 0:
            return newest, why
        if made_progress(newest, attempt.reached):
            return newest, why
        # Checkpoints that the job itself wrote to the bucket are never renamed, so skip suspects here.
        older = parts.patiently(
            "look for older checkpoints",
            lambda: newest_but(parts.catalogue.complete(), attempt.suspects),
        )
        return older, older.why if older is not None else ""

    def _give_up_after(self, attempt: Attempt, wanted: Attempt, outcome: JobOutcome) -> str:
        """
        Give up after too many failures; if a worker is silent, return a text about it instead.

        Raise JobInterrupted after giving up. A silent worker may be the cause, so the gang then continues.
        """
        if wanted.failures < self._settings.failures:
            return ""
        # Without an exit code the job never ran, so a missing worker cannot have made it fail.
        missing = None if outcome.code is None else silent_peer(self._parts, attempt.attempt)
        if missing is not None:
            return f"worker {missing} is silent; the job is tried until its machine is replaced"
        tried = self._parts.patiently("put suspects back", lambda: acquit(self._parts.catalogue, wanted))
        count = f"{wanted.failures} starts in a row without progress; the last: "
        text = f"{count if wanted.failures > 1 else ''}{outcome.reason}{tried}"
        self._parts.patiently("give up", lambda: self._parts.attempts.give_up(text))
        raise JobInterrupted(Ending(EndingKind.GAVE_UP, text))

    def _without_the_newest(self, attempt: Attempt, wanted: Attempt) -> Attempt:
        """
        Resume from the checkpoint before the newest one if the newest one seems to make the job fail.

        Worker 0 decides; the others give it BREAKER_PATIENCE seconds, so that there is one decision.
        """
        parts = self._parts
        newest, _why = self._newest(attempt)
        if newest is None or not is_due(attempt, wanted, newest):
            return wanted
        # Two workers that rename the same manifests at once would overwrite each other's copies.
        if self._settings.worker:
            self._pause(attempt, BREAKER_PATIENCE)
            return wanted
        newer = parts.patiently("look for a newer incarnation", parts.attempts.newer_incarnation)
        if newer is not None:
            # A replacement may be restoring this checkpoint now, so it must not be renamed.
            raise JobInterrupted(
                Ending(EndingKind.FENCED, f"TPU #{newer} exists, this machine is not needed")
            )
        return parts.patiently("go one checkpoint back", lambda: go_back(parts.catalogue, wanted, newest))

    def _pause(self, attempt: Attempt, seconds: float) -> None:
        end = time.monotonic() + seconds
        # Stop waiting as soon as another worker has created the next attempt.
        while time.monotonic() < end and not self._parts.interrupts.overtaken(attempt.attempt):
            self._parts.interrupts.wait(min(0.5, max(0.0, end - time.monotonic())))


ALIKE = 2
MOST_BACK = 2


# The crash-loop breaker: a newest checkpoint from which every start fails in the same way is set aside. If
# the one before it fails too, the checkpoint was not the cause, and it is put back.


def is_due(last: Attempt, wanted: Attempt, newest: Optional[Checkpoint]) -> bool:
    """
    Return whether to resume from an older checkpoint.

    The condition: ALIKE consecutive starts from the newest checkpoint ended with the same status and without
    progress.
    """
    return (
        newest is not None
        and newest.step == last.resume_step
        and wanted.same >= ALIKE
        and len(wanted.suspects) < MOST_BACK
    )


def go_back(catalogue: Catalogue, wanted: Attempt, newest: Checkpoint) -> Attempt:
    """
    Return the attempt from the checkpoint before *newest*; *wanted* itself if there is no other one.

    Checkpoints that the job itself wrote to the bucket are not renamed, since the job may search there: only
    the value of TPUCTL_RESUME changes.
    """
    suspects = (*wanted.suspects, (newest.step, newest.incarnation))
    back = newest_but(catalogue.complete(), suspects)
    if back is None:
        return wanted
    # Only checkpoints that agents committed are renamed; those that the job wrote have incarnation -1.
    if newest.incarnation >= 0:
        catalogue.suspect(newest)
    return replace(
        wanted,
        resume_step=back.step,
        resume_incarnation=back.incarnation if back.incarnation >= 0 else None,
        same=0,
        code=None,
        suspects=suspects,
        reason=f"{wanted.same} starts from step {newest.step} ended alike, so the checkpoint before "
        f"is taken; {wanted.reason}",
    )


def newest_but(complete: Iterable[Checkpoint], suspects: Sequence[Tuple[int, int]]) -> Optional[Checkpoint]:
    """Return the newest checkpoint that is not one of *suspects*, None if there is none."""
    return next((one for one in complete if (one.step, one.incarnation) not in suspects), None)


def going_back_text(attempt: Attempt, folder: str) -> str:
    """Return which checkpoints an attempt skips, "" for none; *folder* is the job's folder in the bucket."""
    if not attempt.suspects:
        return ""
    steps = " and ".join(str(step) for step, _ in attempt.suspects)
    text = (
        f"{ALIKE} starts in a row from step {steps} failed alike, so this one is from step "
        f"{attempt.resume_step}; nothing is deleted"
    )
    if all(incarnation >= 0 for _, incarnation in attempt.suspects):
        return text
    return (
        f"{text}. A job that does not read TPUCTL_RESUME finds step {steps} in {folder} all the same: if it "
        "fails again, move that away"
    )


def acquit(catalogue: Catalogue, attempt: Attempt) -> str:
    """Put the attempt's suspects back and return a sentence about it, "" if there were none."""
    for step, incarnation in attempt.suspects:
        if incarnation >= 0:
            catalogue.acquit(step, incarnation)
    steps = ", ".join(str(step) for step, _ in attempt.suspects)
    text = f"; going back from step {steps} did not help, so it is in the choice again"
    return text if steps else ""
