"""Summarise a finished run: steps, loss, preemptions, repeated steps, recovery by part, goodput, cost."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil, inf

from orchestrator.contract.heartbeat_pause import heartbeat_pause
from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event, EventKind, change_word
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind, Verb
from orchestrator.pricing.use_spans import BEFORE, Use
from orchestrator.report.recoveries import Recovery, recoveries_of, time_of

COMMITS = "commits"
"""Value of `Heartbeat.progress_from` for a job whose steps are known from its saves only."""
UNNOTICED = 2.0
"""Seconds that a machine may take to notice a save, or to bring a report into the bucket."""
LIVING = frozenset({Phase.BOOT, Phase.SETUP, Phase.RESTORE, Phase.RUN, Phase.STOPPING})
UNKNOWN = "not known"
USE_TEXTS = {
    Use.TRAINING: "steps that count",
    Use.LOST: "steps of a lost TPU that were made again",
    Use.REPEATED: "steps made again without a preemption",
    Use.RECOVERING: "from a preemption to the next TPU's first step",
    Use.STARTING: "from the first TPU, or a restart, to the next step",
    Use.IDLE: "machines while no TPU had work",
    Use.UNKNOWN: "what the TPU did was not reported",
    Use.STORAGE: "what the bucket holds",
}
"""Says to people what each use of paid time is."""


@dataclass(frozen=True)
class Summary:
    """
    The figures of one deployment; *goodput* is the share of wall-clock time spent on steps that counted.

    *steps_redone_is_lower_bound* says that a machine was lost without a last heartbeat, so more steps may have been
    repeated: up to *upper_steps_redone* in all, an estimate. *steps_repeated* of them were made again without a
    preemption. None means unknown: for a job whose steps are known
    from its saves only, repeated steps are not counted. *unpriced* names items without a known price, which
    are in no sum. *upper_usd* is the cost at the highest prices of any source. *save_pauses_s* is for how many
    seconds the *measured_saves* of worker 0 have stopped the training; not each save can be measured.
    """

    steps: int | None
    loss: float | None
    preemptions: int
    steps_redone: int | None
    steps_redone_is_lower_bound: bool
    recoveries: tuple[Recovery, ...]
    goodput: float | None
    wall_s: float
    usd: float
    on_demand_usd: float
    unpriced: tuple[str, ...] = ()
    save_pauses_s: float | None = None
    measured_saves: int | None = None
    upper_steps_redone: int | None = None
    steps_repeated: int = 0
    upper_usd: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """Return the summary as `--json` prints it."""
        return asdict(self)


def summarise(
    heartbeats: Sequence[Heartbeat], events: Sequence[Event], *, preemptions: int, wall: float,
    usd: float, on_demand_usd: float, upper_usd: float = 0.0, unpriced: tuple[str, ...] = (),
    begun: Collection[int] = (), heartbeat_interval: float = inf, trained: float = 0.0,
) -> Summary:  # fmt: skip
    """
    Return the summary of the incarnations that *heartbeats* (the last heartbeat of each) and *events* describe.

    *wall* is how many seconds the deployment was up, *begun* has the incarnations with which `up` started or
    restarted it, which did not recover from anything. *heartbeat_interval* is the longest time between two
    heartbeats in seconds, *trained* for how many seconds steps were made that count (`use_spans`).
    """
    # A machine that was preempted before it trained has no steps to lose.
    mine = [_with_last_step(heartbeat) for heartbeat in heartbeats if heartbeat.worker == 0]
    chain = sorted((b for b in mine if b.step is not None), key=lambda b: b.incarnation)
    ways = [
        (before, after)
        for before, after in pairwise(chain)
        if not any(before.incarnation < first <= after.incarnation for first in begun)
    ]
    # After `up` a job that begins at its first step is another one; one that resumes makes steps again.
    again = [pair for pair in pairwise(chain) if pair in ways or _first_resumed(pair[1])]
    redone = sum(_redone_after(*pair) for pair in again)
    # An attempt that goes back on the same TPU, as after a crash, makes steps again too.
    repeated = sum(_redone_there(heartbeat) for heartbeat in chain)
    redone += repeated
    repeated += sum(_redone_after(*pair) for pair in again if pair not in ways)
    started = sorted((b for b in mine if _started(b)), key=lambda b: b.incarnation)
    counted = all(counts(heartbeat) for heartbeat in started)
    untold = [
        _untold(before, after, events, heartbeat_interval) for before, after in again if _trained_on(before)
    ]
    known = redone if counted or not _lost(started) else None
    stopped = [
        (heartbeat.save_pauses, heartbeat.measured_saves)
        for heartbeat in chain
        if heartbeat.save_pauses is not None and heartbeat.measured_saves
    ]
    return Summary(
        steps=_last_step(chain[-1]) if chain else None,
        loss=chain[-1].loss if chain else None,
        preemptions=preemptions,
        steps_redone=known,
        steps_redone_is_lower_bound=bool(untold),
        steps_repeated=0 if known is None else repeated,
        recoveries=recoveries_of(mine, events, begun),
        goodput=min(1.0, trained / wall) if wall and counted else None,
        wall_s=wall,
        usd=usd,
        on_demand_usd=on_demand_usd,
        upper_usd=upper_usd,
        unpriced=unpriced,
        save_pauses_s=sum(seconds for seconds, _ in stopped) if stopped else None,
        measured_saves=sum(number for _, number in stopped) if stopped else None,
        upper_steps_redone=None if known is None or None in untold else known + sum(n or 0 for n in untold),
    )


def redone_texts(summary: Summary) -> tuple[str, str]:
    """Return how many steps were trained twice, as far as known, and why that is not exact, if it is not."""
    least, most = summary.steps_redone, summary.upper_steps_redone
    if least is None:
        return UNKNOWN, ""
    why = []
    if summary.steps_repeated:
        number = "all" if summary.steps_repeated == least else f"{summary.steps_repeated:,}"
        why = [f"{number} after a crash, a push or `tpuctl up`"]
    if not summary.steps_redone_is_lower_bound or least == most:
        return f"{least:,}", "; ".join(why)
    if most is None:
        why.append("how many more a lost TPU made after its last report is not known")
        return f"at least {least:,}", "; ".join(why)
    why.append("what a lost TPU made after its last report is an estimate")
    return f"{least:,} to about {most:,}", "; ".join(why)


def _with_last_step(heartbeat: Heartbeat) -> Heartbeat:
    """Return the report with the last step of the attempt before, while the present one has made none."""
    return (
        replace(heartbeat, step=heartbeat.trained[-1].to_step)
        if heartbeat.step is None and heartbeat.trained
        else heartbeat
    )


def _redone_after(before: Heartbeat, after: Heartbeat) -> int:
    """Return how many steps of one TPU the next one made again, as far as it had reported them."""
    return max(0, (before.step or 0) - _first_resumed(after))


def _redone_there(heartbeat: Heartbeat) -> int:
    """Return how many steps the attempts after the first one on a machine made again."""
    return sum(max(0, one.to_step - after.from_step) for one, after in pairwise(heartbeat.trainings))


def _first_resumed(heartbeat: Heartbeat) -> int:
    """Return the step from which the first attempt on a machine trained, 0 for the beginning."""
    return heartbeat.trained[0].from_step if heartbeat.trained else heartbeat.start_step


def counts(heartbeat: Heartbeat) -> bool:
    """Return whether a machine reported its steps while it trained, and not only through its saves."""
    return heartbeat.step is not None and heartbeat.progress_from != COMMITS


def _started(heartbeat: Heartbeat) -> bool:
    """
    Return whether the job trained on this machine, as far as its last heartbeat tells.

    One that gave up without a step has not: it failed at its imports, or at the first batch.
    """
    if heartbeat.step is None and heartbeat.phase is Phase.FAILED:
        return False
    return heartbeat.step is not None or ("spawned" in heartbeat.timings and heartbeat.phase not in BEFORE)


def _lost(started: Sequence[Heartbeat]) -> bool:
    """Return whether a machine other than the newest has trained without reporting its steps."""
    return any(not counts(heartbeat) for heartbeat in started[:-1])


def _trained_on(heartbeat: Heartbeat) -> bool:
    """Return whether a lost machine may have trained on after its last heartbeat."""
    # Asked to stop, with its newest step committed: the job has made its last save.
    saved = heartbeat.phase is Phase.STOPPING and heartbeat.committed_step is not None
    return heartbeat.phase in LIVING and not (saved and heartbeat.committed_step == heartbeat.step)


def _untold(before: Heartbeat, after: Heartbeat, events: Sequence[Event], interval: float) -> int | None:
    """
    Return how many steps beyond its last heartbeat a machine may have made in vain; None if nothing tells.

    It may have trained on, at its last rate, until its preemption was observed, but not until its next report
    or the end of its next commit, which are missing. What it committed meanwhile was kept.
    """
    observed = time_of(events, EventKind.PREEMPTED, before.incarnation)
    if observed is None:
        observed = time_of(events, change_word(Kind.NODE, Verb.CREATE), after.incarnation)
    if not before.rate or observed is None or before.step is None:
        return None
    age = before.updated - before.timings.get("spawned", -inf)
    alive = min(observed - before.updated, heartbeat_pause(age, interval) + UNNOTICED)
    reached = before.step + ceil(before.rate * max(0.0, alive))
    resumed = _first_resumed(after)
    apart, commit = before.observed_save_interval, before.commit_seconds
    # Not for several machines: what one has committed counts only when all have.
    if resumed and before.workers == 1 and apart is not None and commit is not None:
        # A commit under way delays the next one, so the next may have begun that much later.
        unsaved = max(apart, commit) + commit + UNNOTICED
        reached = min(reached, max(before.step, resumed + ceil(before.rate * unsaved)))
    return reached - max(before.step, min(reached, resumed))


def _last_step(heartbeat: Heartbeat) -> int | None:
    """Return the last known step, which may be that of a save after the last heartbeat."""
    return max((n for n in (heartbeat.step, heartbeat.committed_step) if n is not None), default=None)
