"""
Judge a rehearsal: whether the job came back from every blow, and what each one cost.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from math import isclose

from orchestrator.core.world import Heartbeat, Phase

SAME_LOSS = 1e-6
"""Relative difference up to which two losses count as the same; frameworks print six digits."""


class Kill(Enum):
    """
    Name the ways in which a rehearsal takes machines away.
    """

    NOTICE = "notice"
    KILL = "kill"
    SAVE = "save"
    RESTORE = "restore"
    TWICE = "twice"
    VM = "vm"


@dataclass(frozen=True)
class Blow:
    """
    Remember one blow: what the job had reported before it, as far as it was heard.

    *step* is the last step heard of, *committed* the newest committed checkpoint; *at* is in seconds since
    the epoch.
    """

    kill: Kill
    incarnation: int
    at: float
    step: int | None
    committed: int | None


@dataclass(frozen=True)
class Comeback:
    """
    Hold how the job came back from one blow.

    *ignored* says that it did not read its checkpoint, *redone* counts steps trained twice, *seconds* is
    the time lost.
    """

    kill: Kill
    resumed: bool
    why: str
    ignored: bool = False
    redone: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Verdict:
    """
    Hold the end of a rehearsal. *same_loss* is None when there was no unbroken run to compare with.

    *missed* counts the blows that the job was too short for.
    """

    done: bool
    comebacks: tuple[Comeback, ...]
    same_loss: bool | None
    loss: float | None
    unbroken_loss: float | None
    torn: int
    seconds_lost: float | None
    advice: tuple[str, ...]
    missed: int = 0

    @property
    def survives(self) -> bool:
        """
        Say whether every blow was struck, and the job came back each time and reached its end.
        """
        return self.done and not self.missed and all(c.resumed for c in self.comebacks)

    def as_dict(self) -> dict[str, object]:
        """
        Return the verdict as `--json` prints it.
        """
        comebacks = [{**asdict(c), "kill": c.kill.value} for c in self.comebacks]
        return {**asdict(self), "comebacks": comebacks, "survives": self.survives}


def judge(
    blows: Sequence[Blow], beats: Sequence[Heartbeat], *, done: bool, torn: int, unbroken_loss: float | None,
    seconds: float, unbroken_seconds: float | None, missed: int = 0,
) -> Verdict:  # fmt: skip
    """
    Return the verdict over *blows*, given the last report of each incarnation's worker 0.
    """
    chain = {b.incarnation: b for b in sorted(beats, key=lambda b: b.incarnation) if b.worker == 0}
    comebacks = tuple(_comeback(blow, chain) for blow in blows)
    last = chain[max(chain)] if chain else None
    loss = last.loss if last else None
    same = None
    if unbroken_loss is not None and loss is not None:
        same = isclose(loss, unbroken_loss, rel_tol=SAME_LOSS)
    lost = None if unbroken_seconds is None else max(0.0, seconds - unbroken_seconds)
    short = (f"the job is too short for {missed} more blow(s): give it more steps",) if missed else ()
    advice = (*short, *_advice(comebacks, blows, done=done, same=same))
    return Verdict(done, comebacks, same, loss, unbroken_loss, torn, lost, advice, missed)


def _comeback(blow: Blow, chain: dict[int, Heartbeat]) -> Comeback:
    """
    Find the next incarnation that trained, and compare where it went on with what had been saved.
    """
    later = [chain[n] for n in sorted(chain) if n > blow.incarnation and _trained(chain[n])]
    if blow.kill is Kill.VM:
        return Comeback(blow.kill, resumed=True, why="the VM came back; the TPU trained on")
    if not later:
        return Comeback(blow.kill, resumed=False, why="no later machine made a step")
    after = later[0]
    restored = after.resumed_from or 0
    start = restored if after.began_at is None else min(restored, after.began_at)
    ignored = start < restored
    before = chain.get(blow.incarnation)
    reached = max(blow.step or 0, (before.step or 0) if before else 0)
    first = after.timings.get("first_step")
    seconds = None if first is None else first - blow.at
    redone = max(0, reached - start)
    if blow.committed is not None and start < blow.committed:
        why = f"step {blow.committed} was saved, but it went on from step {start}"
        return Comeback(blow.kill, resumed=False, why=why, ignored=ignored, redone=redone, seconds=seconds)
    if blow.committed is None and not start:
        why = f"nothing had been saved by step {reached}; it began again"
        return Comeback(blow.kill, resumed=reached == 0, why=why, redone=redone, seconds=seconds)
    return Comeback(
        blow.kill, resumed=True, why=f"it went on from step {start}", redone=redone, seconds=seconds
    )


def _trained(beat: Heartbeat) -> bool:
    """
    Say whether a machine made a step: it was seen, or the job ended so soon after that only its save was.
    """
    saved = (beat.committed_step or 0) > (beat.resumed_from or 0)
    return "first_step" in beat.timings or (beat.phase is Phase.DONE and saved)


def _advice(
    comebacks: Sequence[Comeback], blows: Sequence[Blow], *, done: bool, same: bool | None
) -> tuple[str, ...]:
    advice = []
    if not done:
        advice.append("the job did not reach its end: read the log with `tpuctl logs` and mend what it says")
    if any(b.committed is None for b in blows if b.kill is not Kill.VM):
        advice.append("save earlier and more often: a machine went before the first checkpoint was complete")
    if any(c.ignored for c in comebacks):
        advice.append("the script ignores its checkpoint: restore it from $TPUCTL_CHECKPOINT_DIR first")
    if same is False:
        advice.append(
            "the loss differs from the unbroken run: save optimizer and random state, and make the data "
            "order a function of the step"
        )
    return tuple(advice)
