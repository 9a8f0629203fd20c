"""Make the last commit after the job has ended: without a limit if the machine stays, bounded if it goes."""

from __future__ import annotations

import threading
from typing import Optional

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.context import AgentContext
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind, settle
from orchestrator.agent.side_threads import say
from orchestrator.contract.machine_errors import AgentError, FencedError, FinalError
from orchestrator.contract.preemption_notice import LAST_COMMIT

LAST_TRIES = 4


def last_commit(context: AgentContext, at_end: bool = False) -> str:
    """
    Commit everything that the job has finished, and wait for the bucket as long as it takes.

    *at_end* means that the job is finished, so that outputs are whole. Return what could not be committed, ""
    if nothing. Raise AgentMustEnd.
    """
    message = ""
    for _try in range(LAST_TRIES):
        try:
            while context.patiently("last commit", context.committer.commit):
                continue
            if at_end and context.format.at_end:
                context.patiently("commit the outputs", context.committer.commit_outputs)
        # A newer incarnation continues from the bucket, so nothing of ours is missing.
        except FencedError:
            return ""
        except FinalError as error:
            # The job has ended, so a folder that changed a moment ago does not change any more.
            message = str(error)
            say(f"last commit: {message}")
        else:
            return ""
    return message


def commit_in_time(context: AgentContext) -> None:
    """Try the last commit within the LAST_COMMIT seconds that a preempted machine has for it."""

    def commit() -> None:
        try:
            while context.committer.commit():
                continue
        except (AgentError, OSError) as error:
            context.heartbeat.warn("last commit", str(error))

    thread = threading.Thread(target=commit, name="last-commit", daemon=True)
    thread.start()
    # The thread keeps running and may still succeed while the last heartbeat is written.
    thread.join(LAST_COMMIT)
    if thread.is_alive():
        context.heartbeat.warn("last commit", f"not finished within {LAST_COMMIT:g} s")


def conclude(context: AgentContext, attempt: Attempt, outcome: JobOutcome) -> JobOutcome:
    """Commit what the job has finished; return the outcome in view of what is committed. Raise AgentMustEnd."""
    if outcome.code == 0:
        context.local.rest(in_order=True)
    message = last_commit(context, at_end=outcome.kind is JobOutcomeKind.DONE)
    committed, target = context.heartbeat.get("committed_step"), _target(context)
    if message and not (outcome.code == 0 and committed is None):
        return JobOutcome(
            JobOutcomeKind.FAILED, f"the last checkpoint cannot be saved in the bucket: {message}"
        )
    proven = context.committer.proven
    if target is not None and proven is not None and proven >= target:
        return JobOutcome(
            JobOutcomeKind.DONE, f"step {proven} is saved in the bucket, the target is {target}"
        )
    saved = committed is not None and (attempt.resume_step is None or committed > attempt.resume_step)
    return settle(outcome, committed=committed, saved=saved, output=context.log.tail())


def _target(context: AgentContext) -> Optional[int]:
    """Return the declared target step, else the one stored in the newest checkpoint."""
    if context.settings.target is not None or context.settings.checkpoints.in_bucket:
        return context.settings.target
    return context.patiently("read the newest checkpoint", context.local.target)
