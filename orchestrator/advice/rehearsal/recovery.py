"""Judge how a job resumed after one injected fault: from which step, and at what cost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from math import isclose

from orchestrator.advice.rehearsal.run import Fault, InjectedFault, ObservedRun
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.start_times import prepared_at, ready_at

PARTS = ("machine", "unpack", "setup", "restore", "first step")
"""Parts of a recovery; the table of `watch` has the same below "packages", "setup", "restore" and "first step"."""


class ResumeDefect(Enum):
    """
    What a job did instead of resuming from its newest checkpoint.

    BACK is IGNORED or COUNTS_AGAIN if it is unknown which: it returned to steps below the restored one.
    """

    NO_RETURN = "no-return"
    NOTHING_SAVED = "nothing-saved"
    OLDER = "older"
    IGNORED = "ignored"
    COUNTS_AGAIN = "counts-again"
    BACK = "went-back"


@dataclass(frozen=True)
class RecoveryVerdict:
    """
    How the job resumed after one fault; None means unknown.

    *ignored* says that it did not read its checkpoint, *steps_redone* counts repeated steps, *total_s* is the
    time to the next step, divided into *parts_s*. *warm_saved_s* are the seconds by which setup and first step were
    shorter than on the first machine, unpacking included; None if nothing was restored.
    """

    fault: Fault
    resumed: bool
    message: str
    ignored: bool = False
    steps_redone: int | None = None
    total_s: float | None = None
    defect: ResumeDefect | None = None
    parts_s: dict[str, float] = field(default_factory=dict)
    warm_saved_s: float | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the recovery as `--json` prints it."""
        return {
            **asdict(self),
            "fault": self.fault.value,
            "defect": self.defect.value if self.defect else None,
        }


def recovery_of(
    fault: InjectedFault, run: ObservedRun, undisturbed: ObservedRun | None = None
) -> RecoveryVerdict:
    """Return how the next incarnation that trained has resumed, compared with what had been saved."""
    chain = run.chain
    later = [chain[n] for n in chain if n > fault.incarnation]
    wrote = {one.incarnation for one in run.written}
    trained = [b for b in later if _trained(b) or b.incarnation in wrote]
    # The TPU was not touched, so no resume is expected.
    if fault.kind is Fault.VM:
        return RecoveryVerdict(fault.kind, resumed=True, message="the VM came back; the TPU trained on")
    if not trained and run.silent and any(b.phase is Phase.DONE for b in later):
        message = "it was started again from the beginning and reached its end"
        return RecoveryVerdict(
            fault.kind, resumed=True, message=message, parts_s=_parts(fault, later[-1], tells_steps=False)
        )
    if not trained:
        message = "no later machine made a step"
        return RecoveryVerdict(fault.kind, resumed=False, message=message, defect=ResumeDefect.NO_RETURN)
    after = trained[0]
    tells_steps = run.tells_steps
    restored = after.resumed_from or 0
    # A job that ignores its checkpoint starts below the restored step, whatever it was given.
    began = after.began_step if after.from_step is None else after.from_step
    start = restored if began is None else min(restored, began)
    before = chain.get(fault.incarnation)
    reached = max(fault.step or 0, (before.step or 0) if before else 0)
    first = after.timings.get("first_step")
    resumed, defect = True, None
    message = f"it went on from step {start}"
    lower = list(dict.fromkeys(s.step for s in run.written if s.incarnation == after.incarnation))
    lower = sorted(step for step in lower if step < restored)
    if start < restored or lower:
        resumed, defect = False, _went_back(run, undisturbed, after, lower)
        evidence = f"its next saves are {_few(lower)}" if lower else f"it went on from step {start}"
        message = f"step {restored} was restored, but {evidence}"
        start = min(start, min(lower, default=start))
    elif fault.committed is not None and start < fault.committed:
        resumed, defect = False, ResumeDefect.OLDER
        message = f"step {fault.committed} was saved, but it went on from step {start}"
    # Without a checkpoint there is no defect in the resume, as long as no step was lost.
    elif fault.committed is None and not start:
        resumed, defect = reached == 0, ResumeDefect.NOTHING_SAVED
        message = f"nothing had been saved by step {reached}; it began again"
    return RecoveryVerdict(
        fault.kind,
        resumed=resumed,
        message=message,
        ignored=defect is ResumeDefect.IGNORED,
        steps_redone=max(0, reached - start) if tells_steps else None,
        total_s=first - fault.at if tells_steps and first is not None else None,
        defect=defect,
        parts_s=_parts(fault, after, tells_steps=tells_steps),
        warm_saved_s=_warm_saved(run.chain[min(run.chain)], after, tells_steps=tells_steps),
    )


def _warm_saved(first: Heartbeat, after: Heartbeat, *, tells_steps: bool) -> float | None:
    """Return how many seconds sooner a machine was ready than the first one, because of restored installs."""
    if "unpacked" not in after.timings:
        return None

    def took(heartbeat: Heartbeat) -> float:
        parts = _parts_of(heartbeat.timings, tells_steps=tells_steps)
        return sum(parts.get(name, 0.0) for name in ("unpack", "setup", "first step"))

    return took(first) - took(after)


def settled(recoveries: Sequence[RecoveryVerdict]) -> tuple[RecoveryVerdict, ...]:
    """Return the recoveries, each explained by the others: a script that ignores its checkpoint always does."""
    known = {c.defect for c in recoveries} & {ResumeDefect.IGNORED, ResumeDefect.COUNTS_AGAIN}
    if len(known) != 1:
        return tuple(recoveries)
    (defect,) = known
    return tuple(
        replace(c, defect=defect, ignored=defect is ResumeDefect.IGNORED)
        if c.defect is ResumeDefect.BACK
        else c
        for c in recoveries
    )


def _few(steps: list[int]) -> str:
    return ", ".join(str(step) for step in steps[:3]) + (" ..." if len(steps) > 3 else "")


def _parts(fault: InjectedFault, after: Heartbeat, *, tells_steps: bool) -> dict[str, float]:
    """Return the seconds of each known part; that of the first step only if the job *tells_steps*."""
    boot = after.timings.get("boot")
    machine = {} if boot is None else {"machine": max(0.0, boot - fault.at)}
    return {**machine, **_parts_of(after.timings, tells_steps=tells_steps)}


def _parts_of(times: Mapping[str, float], *, tells_steps: bool) -> dict[str, float]:
    """Return the seconds of the parts of one machine's start, as far as they are known."""
    ready, prepared = ready_at(times), prepared_at(times)
    marks = {
        "unpack": (times.get("unpack_began"), times.get("unpacked")),
        "setup": (times.get("setup_began"), times.get("setup_done")),
        "restore": (ready, prepared if "restored" in times else None),
        "first step": (prepared, times.get("first_step") if tells_steps else None),
    }
    return {
        name: max(0.0, end - begin)
        for name, (begin, end) in marks.items()
        if begin is not None and end is not None
    }


def _trained(heartbeat: Heartbeat) -> bool:
    """Return whether a machine made a step, observed or shown by the save of a job that ended soon after."""
    saved = (heartbeat.committed_step or 0) > (heartbeat.resumed_from or 0)
    return "first_step" in heartbeat.timings or (heartbeat.phase is Phase.DONE and saved)


def _went_back(
    run: ObservedRun, undisturbed: ObservedRun | None, after: Heartbeat, lower: list[int]
) -> ResumeDefect:
    """
    Tell a job that does not read its checkpoint from one that reads it and restarts its step count at 0.

    One that starts over repeats the first losses and the first saves. One that only restarts its count has
    later losses, saves at other steps, or ends at a lower step.
    """
    first = min(run.chain, default=0)
    begun, again = dict(run.losses.get(first, ())), dict(run.losses.get(after.incarnation, ()))
    common = sorted(set(begun) & set(again))
    if common:
        # Equal first losses mean that it started over; comparing all common steps rules out chance.
        alike = all(isclose(begun[step], again[step], rel_tol=1e-6) for step in common)
        if alike:
            return ResumeDefect.IGNORED
        step, newest = common[0], begun[max(begun)]
        near = abs(again[step] - newest) < abs(again[step] - begun[step])
        return ResumeDefect.COUNTS_AGAIN if near else ResumeDefect.IGNORED
    # Observed order may be newest first: only that one is committed, the others are found on disk.
    made = [one.step for one in run.written if one.incarnation == first]
    if lower and made and min(lower) > min(made):
        return ResumeDefect.COUNTS_AGAIN
    ended = max((s.step for s in run.written if s.incarnation == after.incarnation), default=None)
    whole = max((s.step for s in undisturbed.written), default=None) if undisturbed else None
    ran_out = run.done and after.incarnation == max(run.chain)
    if ran_out and ended is not None and whole is not None:
        return ResumeDefect.COUNTS_AGAIN if ended < whole else ResumeDefect.IGNORED
    return (
        ResumeDefect.IGNORED if after.began_step is not None and after.began_step <= 1 else ResumeDefect.BACK
    )
