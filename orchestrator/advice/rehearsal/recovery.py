"""Judge how a job resumed after one injected failure: from which step, and at what cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from math import isclose

from orchestrator.advice.rehearsal.life import Injection, Kill, RehearsedLife
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Heartbeat

PARTS = {
    "machine": ("", "boot"),
    "unpack": ("unpack_began", "unpacked"),
    "setup": ("setup_began", "setup_done"),
    "restore": ("restore_began", "restored"),
    "first step": ("spawned", "first_step"),
}
"""Parts of a recovery: the two times of the next machine that each lies between; "" is the failure."""


class Fault(Enum):
    """
    What a job did instead of resuming from its newest checkpoint.

    BACK is IGNORED or COUNTS_AGAIN if it is unknown which: it returned to steps below the restored one.
    """

    NO_RETURN = "no-return"
    NOTHING_SAVED = "nothing-saved"
    OLDER = "older"
    IGNORED = "ignored"
    COUNTS_AGAIN = "counts-anew"
    BACK = "went-back"


@dataclass(frozen=True)
class RecoveryVerdict:
    """
    How the job resumed after one failure; None means unknown.

    *ignored* says that it did not read its checkpoint, *redone* counts repeated steps, *seconds* is the time
    to the next step, divided into *parts*. *warm_saved* are the seconds by which setup and first step were
    shorter than on the first machine, unpacking included; None if nothing was restored.
    """

    kill: Kill
    resumed: bool
    why: str
    ignored: bool = False
    redone: int | None = None
    seconds: float | None = None
    fault: Fault | None = None
    parts: dict[str, float] = field(default_factory=dict)
    warm_saved: float | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the recovery as `--json` prints it."""
        return {**asdict(self), "kill": self.kill.value, "fault": self.fault.value if self.fault else None}


def recovery_of(
    injection: Injection, life: RehearsedLife, unbroken: RehearsedLife | None = None
) -> RecoveryVerdict:
    """Return how the next incarnation that trained has resumed, compared with what had been saved."""
    chain = life.chain
    later = [chain[n] for n in chain if n > injection.incarnation]
    wrote = {save.incarnation for save in life.written}
    trained = [b for b in later if _trained(b) or b.incarnation in wrote]
    # The TPU was not touched, so no resume is expected.
    if injection.kill is Kill.VM:
        return RecoveryVerdict(injection.kill, resumed=True, why="the VM came back; the TPU trained on")
    if not trained and life.silent and any(b.phase is Phase.DONE for b in later):
        why = "it was started again from the beginning and reached its end"
        return RecoveryVerdict(
            injection.kill, resumed=True, why=why, parts=_parts(injection, later[-1], tells_steps=False)
        )
    if not trained:
        why = "no later machine made a step"
        return RecoveryVerdict(injection.kill, resumed=False, why=why, fault=Fault.NO_RETURN)
    after = trained[0]
    tells_steps = life.tells_steps
    restored = after.resumed_from or 0
    # A job that ignores its checkpoint starts below the restored step, whatever it was given.
    start = restored if after.began_at is None else min(restored, after.began_at)
    before = chain.get(injection.incarnation)
    reached = max(injection.step or 0, (before.step or 0) if before else 0)
    first = after.timings.get("first_step")
    resumed, fault = True, None
    why = f"it went on from step {start}"
    lower = list(dict.fromkeys(s.step for s in life.written if s.incarnation == after.incarnation))
    lower = sorted(step for step in lower if step < restored)
    if start < restored or lower:
        resumed, fault = False, _went_back(life, unbroken, after, lower)
        evidence = f"its next saves are {_few(lower)}" if lower else f"it went on from step {start}"
        why = f"step {restored} was restored, but {evidence}"
        start = min(start, min(lower, default=start))
    elif injection.committed is not None and start < injection.committed:
        resumed, fault = False, Fault.OLDER
        why = f"step {injection.committed} was saved, but it went on from step {start}"
    # Without a checkpoint there is no fault in the resume, as long as no step was lost.
    elif injection.committed is None and not start:
        resumed, fault = reached == 0, Fault.NOTHING_SAVED
        why = f"nothing had been saved by step {reached}; it began again"
    return RecoveryVerdict(
        injection.kill,
        resumed=resumed,
        why=why,
        ignored=fault is Fault.IGNORED,
        redone=max(0, reached - start) if tells_steps else None,
        seconds=first - injection.at if tells_steps and first is not None else None,
        fault=fault,
        parts=_parts(injection, after, tells_steps=tells_steps),
        warm_saved=_warm_saved(life.chain[min(life.chain)], after, tells_steps=tells_steps),
    )


def _warm_saved(first: Heartbeat, after: Heartbeat, *, tells_steps: bool) -> float | None:
    """Return how many seconds sooner a machine was ready than the first one, because of restored installs."""
    if "unpacked" not in after.timings:
        return None

    def took(beat: Heartbeat) -> float:
        names = [name for name in ("unpack", "setup", "first step") if tells_steps or name != "first step"]
        spans = ((beat.timings.get(begin), beat.timings.get(end)) for begin, end in (PARTS[n] for n in names))
        return sum(max(0.0, end - begin) for begin, end in spans if begin is not None and end is not None)

    return took(first) - took(after)


def settled(recoveries: Sequence[RecoveryVerdict]) -> tuple[RecoveryVerdict, ...]:
    """Return the recoveries, each explained by the others: a script that ignores its checkpoint always does."""
    known = {c.fault for c in recoveries} & {Fault.IGNORED, Fault.COUNTS_AGAIN}
    if len(known) != 1:
        return tuple(recoveries)
    (fault,) = known
    return tuple(
        replace(c, fault=fault, ignored=fault is Fault.IGNORED) if c.fault is Fault.BACK else c
        for c in recoveries
    )


def _few(steps: list[int]) -> str:
    return ", ".join(str(step) for step in steps[:3]) + (" ..." if len(steps) > 3 else "")


def _parts(injection: Injection, after: Heartbeat, *, tells_steps: bool) -> dict[str, float]:
    """Return the seconds of each known part; that of the first step only if the job *tells_steps*."""
    marks = {**after.timings, "": injection.at}
    return {
        name: max(0.0, marks[end] - marks[begin])
        for name, (begin, end) in PARTS.items()
        if begin in marks and end in marks and (tells_steps or end != "first_step")
    }


def _trained(beat: Heartbeat) -> bool:
    """Return whether a machine made a step, observed or shown by the save of a job that ended soon after."""
    saved = (beat.committed_step or 0) > (beat.resumed_from or 0)
    return "first_step" in beat.timings or (beat.phase is Phase.DONE and saved)


def _went_back(
    life: RehearsedLife, unbroken: RehearsedLife | None, after: Heartbeat, lower: list[int]
) -> Fault:
    """
    Tell a job that does not read its checkpoint from one that reads it and restarts its step count at 0.

    One that starts over repeats the first losses and the first saves. One that only restarts its count has
    later losses, saves at other steps, or ends at a lower step.
    """
    first = min(life.chain, default=0)
    begun, again = dict(life.losses.get(first, ())), dict(life.losses.get(after.incarnation, ()))
    common = sorted(set(begun) & set(again))
    if common:
        # Equal first losses mean that it started over; comparing all common steps rules out chance.
        alike = all(isclose(begun[step], again[step], rel_tol=1e-6) for step in common)
        if alike:
            return Fault.IGNORED
        step, newest = common[0], begun[max(begun)]
        near = abs(again[step] - newest) < abs(again[step] - begun[step])
        return Fault.COUNTS_AGAIN if near else Fault.IGNORED
    # Observed order may be newest first: only that one is committed, the others are found on disk.
    made = [save.step for save in life.written if save.incarnation == first]
    if lower and made and min(lower) > min(made):
        return Fault.COUNTS_AGAIN
    ended = max((s.step for s in life.written if s.incarnation == after.incarnation), default=None)
    whole = max((s.step for s in unbroken.written), default=None) if unbroken else None
    ran_out = life.done and after.incarnation == max(life.chain)
    if ran_out and ended is not None and whole is not None:
        return Fault.COUNTS_AGAIN if ended < whole else Fault.IGNORED
    return Fault.IGNORED if after.began_at is not None and after.began_at <= 1 else Fault.BACK
