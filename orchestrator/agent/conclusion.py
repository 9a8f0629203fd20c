"""What the end of the job's process means, once everything that it has finished is committed."""

from __future__ import annotations

from typing import Optional

from orchestrator.agent.gang import Attempt
from orchestrator.agent.last_commit import last_commit
from orchestrator.agent.outcome import Outcome, Verdict, settle
from orchestrator.agent.parts import Parts


def conclude(parts: Parts, attempt: Attempt, outcome: Outcome) -> Outcome:
    """Commit what the job has finished, and return what its end means then. Raises Interrupted."""
    if outcome.code == 0:
        parts.local.rest(in_order=True)
    trouble = last_commit(parts, at_end=outcome.verdict is Verdict.DONE)
    committed, target = parts.status.get("committed_step"), _target(parts)
    if trouble and not (outcome.code == 0 and committed is None):
        return Outcome(Verdict.FAILED, f"the last checkpoint cannot be committed: {trouble}")
    proven = parts.committer.proven
    if target is not None and proven is not None and proven >= target:
        return Outcome(Verdict.DONE, f"step {proven} is committed, the target is {target}")
    saved = committed is not None and (attempt.resume_step is None or committed > attempt.resume_step)
    return settle(outcome, committed=committed, saved=saved, output=parts.log.tail())


def _target(parts: Parts) -> Optional[int]:
    """Return the declared target, else the one that the newest checkpoint knows."""
    if parts.settings.target is not None or parts.settings.checkpoints.in_bucket:
        return parts.settings.target
    return parts.patiently("read the newest checkpoint", parts.local.target)
