"""Show the job's progress: in the live line on a terminal, otherwise as a line for each change."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from orchestrator.app.status.text import NO_STEP, training_loss_text
from orchestrator.cli.graceful_stop import graceful_stop
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.job_progress import common_step, last_step, seconds_remaining
from orchestrator.domain.observation import Present, World
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import rate_text, span_text, usd_range_text
from orchestrator.domain.text.hints import LOAD_CHECKPOINT
from orchestrator.planning.failing import failing_in_short
from orchestrator.planning.ignored import ignored_text
from orchestrator.planning.tpu.race import LOST
from orchestrator.planning.uncommitted import checkpoint_name, uncommitted_text

FIRST_LINE_INTERVAL = 10.0
"""Seconds from a change to a line that reports only steps and checkpoints; the pauses after that double."""
MAX_LINE_INTERVAL = 300.0
"""Most seconds between two such lines."""
LESS = ("rate", "cost", "loss", "checkpoint")
"""What the live line leaves out first where it has no room for the age of the report."""
WORDS = {
    Phase.BOOT: "machine boots",
    Phase.SETUP: "setup runs",
    Phase.RESTORE: "restoring the checkpoint",
    Phase.RUN: "job runs",
    Phase.STOPPING: "the job was asked to stop",
    Phase.STOPPED: "job stopped",
    Phase.ENDED: "job ended, saving its files",
    Phase.DONE: "job done",
    Phase.UNCOMMITTED: "job ended without a checkpoint",
    Phase.FAILED: "job failed",
    Phase.UNKNOWN: "state of the job unknown",
}


AGAIN = {Phase.RUN: "job runs again", Phase.RESTORE: "the job starts again"}
"""The same of a job that has failed."""
BETWEEN_FAILURES = {Phase.RESTORE, Phase.SETUP, Phase.RUN}


class ProgressLine:
    """Turns passes into progress: always in the live line, and as events for changes."""

    def __init__(self, printer: EventPrinter, spec: Spec) -> None:
        self._printer = printer
        self._spec = spec
        self._said: tuple[object, ...] = ()
        self._step: int | None = None
        self._at = 0.0
        self._line_interval = FIRST_LINE_INTERVAL
        self._uncommitted = ""
        self._ignored: tuple[object, ...] = ()

    def graceful_stop(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *stop* at the first Ctrl-C in the block; the second one ends it at once."""

        def leave() -> None:
            self._printer.now("leaving when this pass is over; Ctrl-C again leaves at once")
            stop()

        return graceful_stop(leave)

    def show(self, result: Pass, usd: float, upper_usd: float) -> None:
        """Show one pass: what is waited for, or the step, checkpoint, loss and cost."""
        self._printer.waiting(result.plan.waits, result.world.observed_at)
        self.show_job(result, usd, upper_usd)

    def show_job(self, result: Pass, usd: float, upper_usd: float) -> None:
        """Show the step, checkpoint, loss and cost of one pass, without what is waited for."""
        at = result.world.observed_at
        heartbeats = result.world.known_heartbeats
        if not heartbeats:
            self._printer.now("")
            return
        slowest = min(heartbeats, key=lambda b: b.step or 0)
        slowest = replace(slowest, committed_step=common_step(heartbeats))
        # The heartbeat of a lost machine remains, and would show a running job.
        lost = slowest.phase is Phase.RUN and (
            any(change.requests_tpu for change in result.plan.changes) or _is_gone(slowest, result.world)
        )
        if lost:
            slowest = replace(slowest, rate=None)  # Nothing runs at it any more, so no time is left either.
        limit = self._spec.job.failures
        in_short = "" if lost else failing_in_short(heartbeats, limit)
        # After progress the first failure counts none in a row.
        failed = bool(slowest.message) and slowest.message == slowest.failure_message
        if failed:
            slowest = replace(slowest, message="")  # Said once is enough.
        text = progress_text(slowest, self._spec, usd, upper_usd, lost=lost)
        # The event of the next attempt says why.
        text = f"{text}, {failing_in_short(heartbeats, limit, with_message=False)}" if in_short else text
        text_now, *shorter = live_texts(slowest, self._spec, usd, upper_usd, lost=lost, failing=in_short)
        self._printer.now(text_now, slowest.updated, partial(bar_of, slowest, self._spec), shorter)
        uncommitted = uncommitted_text(self._spec.job.checkpoint, heartbeats)
        if uncommitted and uncommitted != self._uncommitted:
            self._printer(Event(at, EventKind.UNCOMMITTED, uncommitted))
        self._uncommitted = uncommitted
        ignored = ignored_text(heartbeats)
        # Once for each start: the next one may say the same.
        if ignored and (slowest.incarnation, slowest.attempt, ignored) != self._ignored:
            self._ignored = slowest.incarnation, slowest.attempt, ignored
            self._printer(Event(at, EventKind.CHECKPOINT_IGNORED, f"{ignored}; {LOAD_CHECKPOINT}"))
        if self._is_news(slowest, at, failing=failed or bool(in_short)):
            self._at, self._step = at, slowest.step
            self._printer(Event(at, EventKind.PROGRESS, text))

    def _is_news(self, heartbeat: Heartbeat, at: float, *, failing: bool) -> bool:
        """Return whether to print a line; beside a live line only for a new phase, if the job does not fail."""
        # A machine's first checkpoint counts as a change: from then on a preemption costs little.
        news: tuple[object, ...] = (
            heartbeat.incarnation,
            heartbeat.phase,
            not self._printer.live and heartbeat.committed_step is not None,
            failing,
        )
        if failing and self._said[:1] == news[:1] and heartbeat.phase in BETWEEN_FAILURES:
            # The event of each attempt says it; the phases between them would fill the screen.
            news = self._said = (*self._said[:3], True)
        stepped = (
            not self._printer.live and heartbeat.step != self._step and at - self._at >= self._line_interval
        )
        before, self._said = self._said, news
        if news != before:
            self._line_interval = FIRST_LINE_INTERVAL
        elif stepped:
            self._line_interval = min(2 * self._line_interval, MAX_LINE_INTERVAL)
        return news != before or stepped


class MemberLine(ProgressLine):
    """Turns the passes of one of many deployments into progress."""

    def graceful_stop(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Do nothing: the caller that watches all deployments handles Ctrl-C."""
        return nullcontext()


def progress_text(
    heartbeat: Heartbeat, spec: Spec, usd: float, upper_usd: float, *, lost: bool = False
) -> str:
    """
    Return a line about the job; *lost* means that its machine is gone and *heartbeat* was its last heartbeat.

    The cost is from *usd* to *upper_usd*, where the price lists differ.
    """
    parts = [
        _phase(heartbeat, lost=lost),
        *_figures(heartbeat, spec).values(),
        f"{usd_range_text(usd, upper_usd)} so far",
        f"TPU #{heartbeat.incarnation}",
    ]
    return ", ".join(
        [*parts, heartbeat.message] if heartbeat.message and not _shows_message(heartbeat) else parts
    )


def live_texts(
    heartbeat: Heartbeat, spec: Spec, usd: float, upper_usd: float, *, lost: bool = False, failing: str = ""
) -> tuple[str, ...]:
    """
    Return a line for the live line, then ever shorter ones for want of room; the bar shows the rest.

    The cost is from *usd* to *upper_usd*; a budget ends by the latter, which alone stands beside it. *failing* says
    how often the job has failed, which is first: the line is cut at the terminal's edge.
    """
    figures = _figures(heartbeat, spec, of_bar=bar_of(heartbeat, spec) is None)
    runs = heartbeat.phase is Phase.RUN and not lost and heartbeat.step is not None
    budget = spec.watch.budget_usd
    spent = f"{usd_range_text(usd, upper_usd)} so far"
    cost = spent if budget is None else f"{upper_usd:.2f} of {budget:g} USD"
    said = {"failing": failing} if failing else {}
    said |= {} if runs else {"phase": _phase(heartbeat, lost=lost)}
    parts = {**said, **figures, "cost": cost}
    fewer = [
        {name: text for name, text in parts.items() if name not in LESS[:n]} for n in range(len(LESS) + 1)
    ]
    return tuple(dict.fromkeys(", ".join(some.values()) for some in fewer))


def _is_gone(heartbeat: Heartbeat, world: World) -> bool:
    """Return whether the TPU of a report is known to be gone, also when its successor has to wait."""
    alive = {one.incarnation for one in world.known_nodes if one.state not in LOST}
    # An adopted TPU may carry no number.
    return isinstance(world.nodes, Present) and not alive & {heartbeat.incarnation, None}


def bar_of(heartbeat: Heartbeat, spec: Spec, at: float | None = None) -> tuple[float, str] | None:
    """Return the finished share of the steps (0 to 1) and the bar's text at the time *at*, None if unknown."""
    last = last_step(heartbeat, spec.job.target_steps)
    if not last or heartbeat.step is None:
        return None
    age = 0.0 if at is None else max(0.0, at - heartbeat.updated)
    return heartbeat.step / last, ", ".join(
        figure for figure in (_step(heartbeat, spec), _eta(heartbeat, spec, age)) if figure
    )


def _step(heartbeat: Heartbeat, spec: Spec) -> str:
    last = last_step(heartbeat, spec.job.target_steps)
    return "" if heartbeat.step is None else f"step {heartbeat.step}{f' of {last}' if last else ''}"


def _eta(heartbeat: Heartbeat, spec: Spec, age: float = 0.0) -> str:
    known = heartbeat.phase is Phase.RUN and heartbeat.rate
    seconds = seconds_remaining((heartbeat,), spec.job.target_steps) if known else None
    # Past its target a job has job.grace to end by itself, which is no time of training.
    if not seconds:
        return ""
    if seconds - age >= 1:
        return f"{span_text(seconds - age)} left"
    # The step is that of the last heartbeat: beside it "0 s left" would be a contradiction, and whether the job has
    # made the rest by now is not known before the next one.
    remaining = f"{'less than 1 s' if seconds < 1 else span_text(seconds)} left"
    return f"{remaining} at the last heartbeat" if age else remaining


def _shows_message(heartbeat: Heartbeat) -> bool:
    """Return whether the phase itself names the message: far from each other they would be two facts."""
    return heartbeat.phase is Phase.STOPPING and bool(heartbeat.message)


def _phase(heartbeat: Heartbeat, *, lost: bool) -> str:
    if not lost:
        words = {**WORDS, **(AGAIN if heartbeat.failures else {})}[heartbeat.phase]
        return f"{words}: {heartbeat.message}" if _shows_message(heartbeat) else words
    return "last report of the job" + (f": {NO_STEP}" if heartbeat.step is None else "")


def _figures(heartbeat: Heartbeat, spec: Spec, *, of_bar: bool = True) -> dict[str, str]:
    """Return what is known of the job by name, without *of_bar* only what the bar does not show."""
    parts = {
        "step": _step(heartbeat, spec) if of_bar else "",
        "loss": training_loss_text(heartbeat.loss, heartbeat.loss_step),
        "rate": rate_text(heartbeat.rate) if heartbeat.phase is Phase.RUN and heartbeat.rate else "",
        "eta": _eta(heartbeat, spec) if of_bar else "",
        "checkpoint": f"checkpoint at {checkpoint_name(heartbeat)}"
        if heartbeat.committed_step is not None
        else "",
    }
    return {name: part for name, part in parts.items() if part}
