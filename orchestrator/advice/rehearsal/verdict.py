"""Judge a rehearsal: whether the job resumed after every fault, and what each one cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from math import isclose

from orchestrator.advice.rehearsal.recovery import RecoveryVerdict, ResumeDefect, recovery_of, settled
from orchestrator.advice.rehearsal.run import Fault, ObservedRun
from orchestrator.advice.rehearsal.same_bytes import Comparison, Likeness, compare
from orchestrator.domain.plan import Outcome

SAME_LOSS = 1e-6
"""Relative difference up to which two losses count as equal; frameworks print six digits."""


class Cause(Enum):
    """Why a rehearsal did not end as it should."""

    SILENT = "nothing-observed"
    TOO_SHORT = "too-short"
    CRASHED = "crashed"
    EARLY = "ended-early"
    ENDED = "ended"
    UNCOMMITTED = "uncommitted"
    UNSAVED = "nothing-saved"
    IGNORED = "ignored"
    COUNTS_AGAIN = "counts-again"
    BACK = "went-back"
    UNSTEADY = "unsteady"
    DIFFERENT = "different"


class RehearsalResult(Enum):
    """The verdict that people read first."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


class RehearsedRun(Enum):
    """The two runs of a rehearsal."""

    UNDISTURBED = "undisturbed"
    DISTURBED = "disturbed"


@dataclass(frozen=True)
class Crash:
    """How a run failed: the exit status of the job, None if there is none, and its last lines."""

    run: RehearsedRun
    outcome: Outcome | None
    exit_code: int | None
    message: str
    log: tuple[str, ...]


@dataclass(frozen=True)
class Divergence:
    """
    Say where two runs diverge: the last *step* of equal loss, None if already the first ones differ.

    *before* says that no fault had been injected by then.
    """

    step: int | None
    before: bool


@dataclass(frozen=True)
class RehearsalVerdict:
    """
    The result of a rehearsal; *same_loss* is None without an undisturbed run to compare with.

    *faults_s* are the seconds of *longer_s* that the faults took: until the next step, and for the steps redone.
    *missed* counts the faults that came too late, after the job's end; *silent* says that neither a step
    nor a checkpoint was observed.
    """

    done: bool
    recoveries: tuple[RecoveryVerdict, ...]
    same_loss: bool | None
    loss: float | None
    undisturbed_loss: float | None
    torn: int
    longer_s: float | None
    causes: tuple[Cause, ...]
    missed: int = 0
    silent: bool = False
    compared: bool = False
    crash: Crash | None = None
    bytes: Comparison | None = None
    divergence: Divergence | None = None
    hints: tuple[str, ...] = field(default=())
    faults_s: float | None = None

    @property
    def survives(self) -> bool:
        """
        Return whether all faults were injected and the job resumed after each and reached its end.

        False for a job that shows neither step nor checkpoint, because its end proves nothing.
        """
        return self._recovered and not self.missed and not self.silent

    @property
    def result(self) -> RehearsalResult:
        """Return PASS, INCONCLUSIVE (resumed, but not all was proven) or FAIL."""
        if self.survives:
            return RehearsalResult.PASS
        return RehearsalResult.INCONCLUSIVE if self._recovered else RehearsalResult.FAIL

    @property
    def _recovered(self) -> bool:
        return self.done and all(c.resumed for c in self.recoveries)

    @property
    def same_bytes(self) -> bool | None:
        """Return whether both runs left the same checkpoint, None if not known."""
        if self.bytes is None or self.bytes.likeness is Likeness.UNKNOWN:
            return None
        return self.bytes.likeness is Likeness.SAME

    def as_dict(self) -> dict[str, object]:
        """Return the verdict as `--json` prints it."""
        crash = self.crash and {
            **asdict(self.crash),
            "run": self.crash.run.value,
            "outcome": self.crash.outcome.value if self.crash.outcome else None,
            "log": list(self.crash.log),
        }
        compared = self.bytes and {
            "step": self.bytes.step, "files_count": self.bytes.files, "differ": list(self.bytes.differ)
        }  # fmt: skip
        return {
            "verdict": self.result.value.lower(),
            "survives": self.survives,
            "done": self.done,
            "recoveries": [c.as_dict() for c in self.recoveries],
            "same_loss": self.same_loss,
            "loss": self.loss,
            "undisturbed_loss": self.undisturbed_loss,
            "same_checkpoint": self.same_bytes,
            "checkpoint": compared,
            "torn": self.torn,
            "longer_s": self.longer_s,
            "missed": self.missed,
            "failure": crash,
            "causes": [cause.value for cause in self.causes],
            "hints": list(self.hints),
        }


def judge(disturbed: ObservedRun, undisturbed: ObservedRun | None, missed: int = 0) -> RehearsalVerdict:
    """Return the verdict on a run with faults; *undisturbed* is a run of the same job without faults."""
    recoveries = settled([recovery_of(fault, disturbed, undisturbed) for fault in disturbed.faults])
    loss, whole = disturbed.loss, undisturbed.loss if undisturbed else None
    same = None if loss is None or whole is None else isclose(loss, whole, rel_tol=SAME_LOSS)
    known = undisturbed is not None and undisturbed.seconds is not None and disturbed.seconds is not None
    divergence = _divergence(disturbed, undisturbed) if undisturbed and same is False else None
    crash = None if disturbed.done else _crash(RehearsedRun.DISTURBED, disturbed)
    # A run that did not reach its end has another last step, so its bytes would differ anyway.
    compared = compare(disturbed.digests, undisturbed.digests) if undisturbed and disturbed.done else None
    found = RehearsalVerdict(
        done=disturbed.done,
        recoveries=recoveries,
        same_loss=same,
        loss=loss,
        undisturbed_loss=whole,
        torn=disturbed.torn,
        longer_s=_more(disturbed, undisturbed) if known and disturbed.done else None,
        causes=(),
        # After a crash it is unknown whether the fault would have come.
        missed=missed if disturbed.done else 0,
        silent=disturbed.silent,
        compared=undisturbed is not None,
        crash=crash,
        bytes=compared,
        divergence=divergence,
        faults_s=_faults_s(recoveries, disturbed, undisturbed),
    )
    return _with_hints(found, disturbed)


def judge_crash(undisturbed: ObservedRun) -> RehearsalVerdict:
    """Return the verdict on a job that fails without any injected fault."""
    crash = _crash(RehearsedRun.UNDISTURBED, undisturbed)
    found = RehearsalVerdict(
        False,
        (),
        None,
        undisturbed.loss,
        None,
        undisturbed.torn,
        None,
        (),
        silent=undisturbed.silent,
        crash=crash,
    )
    return _with_hints(found, undisturbed)


def _with_hints(found: RehearsalVerdict, run: ObservedRun) -> RehearsalVerdict:
    causes = tuple(_causes(found, run))
    same_until = found.divergence.step if found.divergence else None
    unsaved = _unsaved(found, run)
    hints = tuple(hint_for(cause, same_until, unsaved) for cause in causes)
    values = {**found.__dict__, "causes": causes, "hints": hints}
    return RehearsalVerdict(**values)


def _causes(found: RehearsalVerdict, run: ObservedRun) -> list[Cause]:
    causes = []
    if found.done and found.silent:
        causes.append(Cause.SILENT)
    elif found.missed:
        causes.append(Cause.TOO_SHORT)
    if found.crash is not None:
        causes.append(_cause_of(found.crash))
    if _unsaved(found, run) and not found.silent:
        causes.append(Cause.UNSAVED)
    by_defect = {
        ResumeDefect.IGNORED: Cause.IGNORED,
        ResumeDefect.COUNTS_AGAIN: Cause.COUNTS_AGAIN,
        ResumeDefect.BACK: Cause.BACK,
    }
    causes += [by_defect[c.defect] for c in found.recoveries if c.defect in by_defect]
    # A job that did not resume must differ, so the difference is no separate finding.
    lost = any(not recovery.resumed for recovery in found.recoveries)
    if not lost and (found.same_loss is False or (found.same_loss is None and found.same_bytes is False)):
        causes.append(Cause.UNSTEADY if found.divergence and found.divergence.before else Cause.DIFFERENT)
    return list(dict.fromkeys(causes))


def _unsaved(found: RehearsalVerdict, run: ObservedRun) -> tuple[int, ...]:
    """Return the incarnations that were lost with no complete checkpoint."""
    # A machine that gets a notice may commit its first checkpoint after the fault was recorded.
    empty = (ResumeDefect.NOTHING_SAVED, ResumeDefect.NO_RETURN)
    pairs = zip(run.faults, found.recoveries, strict=False)
    lost = (b.incarnation for b, c in pairs if b.committed is None and c.defect in empty)
    return tuple(dict.fromkeys(lost))


def _cause_of(crash: Crash) -> Cause:
    if crash.outcome is not Outcome.FAILED:
        return Cause.UNCOMMITTED if crash.outcome is Outcome.UNCOMMITTED else Cause.ENDED
    return Cause.EARLY if crash.exit_code == 0 else Cause.CRASHED


def _crash(which: RehearsedRun, run: ObservedRun) -> Crash:
    failed = run.failed
    return Crash(which, run.outcome, failed.exit_code if failed else None, run.message, run.log)


def _more(disturbed: ObservedRun, undisturbed: ObservedRun | None) -> float:
    return max(0.0, (disturbed.seconds or 0.0) - ((undisturbed.seconds if undisturbed else None) or 0.0))


def _faults_s(
    recoveries: Sequence[RecoveryVerdict], disturbed: ObservedRun, undisturbed: ObservedRun | None
) -> float | None:
    """Return the seconds that the faults took by themselves: recoveries and steps redone; None if unknown."""
    per_step = _seconds_per_step(undisturbed) if undisturbed else None
    stopped = [(f, r) for f, r in zip(disturbed.faults, recoveries, strict=True) if f.kind is not Fault.VM]
    if per_step is None or any(None in {r.total_s, r.steps_redone} for _, r in stopped):
        return None
    waited, until = 0.0, 0.0
    # Two faults may lead to one step, for which the job has waited once.
    for fault, recovery in sorted(stopped, key=lambda pair: pair[0].at):
        end = fault.at + (recovery.total_s or 0.0)
        waited += max(0.0, end - max(until, fault.at))
        until = max(until, end)
    return waited + per_step * sum(recovery.steps_redone or 0 for _, recovery in stopped)


def _seconds_per_step(run: ObservedRun) -> float | None:
    """Return the seconds per step of a run without faults, None if its job told too few steps."""
    last = run.chain[max(run.chain)] if run.chain else None
    first = last.timings.get("first_step") if last else None
    if last is None or first is None or not last.step:
        return None
    return max(0.0, (last.progress_at or last.updated) - first) / last.step


def _divergence(disturbed: ObservedRun, undisturbed: ObservedRun) -> Divergence | None:
    """Return the last step up to which both runs had equal losses; None if they have no common step."""
    whole = dict(point for points in undisturbed.losses.values() for point in points)
    same: int | None = None
    last: dict[int, tuple[int, float]] = {}
    for incarnation in sorted(disturbed.losses):
        last.update({step: (incarnation, loss) for step, loss in disturbed.losses[incarnation]})
    first = min(disturbed.losses, default=0)
    for step in sorted(set(whole) & set(last)):
        incarnation, loss = last[step]
        if not isclose(loss, whole[step], rel_tol=SAME_LOSS):
            return Divergence(same, before=incarnation == first)
        same = step
    return None


_TEXTS = {
    Cause.SILENT: (
        "tpuctl saw no step and no checkpoint of this job. Set job.checkpoint.format to what the job writes "
        "(docs/formats.md) and let it save to $TPUCTL_CHECKPOINT_DIR, or tell its steps with job.progress"
    ),
    Cause.TOO_SHORT: (
        "the job ended before each fault could be injected: let it run longer, or choose earlier moments, "
        "such as --at checkpoint:1"
    ),
    Cause.CRASHED: "fix what the last lines of the log say, then rehearse again",
    Cause.EARLY: (
        "the job ends with status 0 before job.target_steps is saved. Save the last step, or set "
        "target_steps to the last step that is saved. Keras: BackupAndRestore needs "
        "delete_checkpoint=False, otherwise fit() deletes the backup at its end"
    ),
    Cause.ENDED: "fix the cause above, then rehearse again",
    Cause.UNCOMMITTED: (
        "let the job save as its format wants, or choose another job.checkpoint.format; what this run saved "
        "is copied by `tpuctl checkpoints fetch --uncommitted`"
    ),
    Cause.UNSAVED: "save earlier and more often",
    Cause.IGNORED: "the script ignores its checkpoint: restore it from $TPUCTL_CHECKPOINT_DIR first",
    Cause.COUNTS_AGAIN: (
        "your script restarts its step count after a resume: restore the step counter with the model, or start "
        "the loop at $TPUCTL_RESUME_STEP"
    ),
    Cause.BACK: (
        "the script ignores its checkpoint or restarts its step count after a resume: restore the model and "
        "the step counter from $TPUCTL_CHECKPOINT_DIR first"
    ),
    Cause.UNSTEADY: (
        "the runs differ before any fault, so this job does not repeat itself: set its seeds, "
        "or compare no losses"
    ),
    Cause.DIFFERENT: (
        "likely causes of the difference: the data order (shuffling restarts at a resume), RNG state that "
        "is not saved, or step counters (learning rate schedule). Save them with the model, or derive them "
        "from the step"
    ),
}


def hint_for(cause: Cause, same_until: int | None = None, unsaved: tuple[int, ...] = ()) -> str:
    """
    Return what to do.

    *same_until* is the last step at which both runs had the same loss, *unsaved* the incarnations that were
    lost before a checkpoint was complete.
    """
    text = _TEXTS[cause]
    if cause is Cause.UNSAVED and unsaved:
        names = " and ".join(f"TPU #{number}" for number in unsaved)
        were = "was" if len(unsaved) == 1 else "were"
        return f"{text}: {names} {were} lost before the first checkpoint was complete"
    if cause is Cause.DIFFERENT and same_until is not None:
        return f"the loss is the same up to step {same_until}, then it differs; {text}"
    return text
