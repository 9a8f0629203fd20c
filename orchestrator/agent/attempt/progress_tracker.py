"""Track the progress of one start: the job's output, reports and saves give the step in the heartbeat."""

from __future__ import annotations

from typing import List, Optional

from orchestrator.agent.attempt.save_pauses import SavePauses
from orchestrator.agent.checkpoints.ignored import ignored_message
from orchestrator.agent.context import AgentContext
from orchestrator.agent.side_threads import say
from orchestrator.agent.telemetry.progress import (
    COMMITS,
    EVENTS,
    KnownProgress,
    ProgressReader,
    StepRate,
    known,
    read_progress,
)
from orchestrator.contract.printed.choose import Output
from orchestrator.contract.printed.stream import Stream


class ProgressTracker:
    """The job's progress; *moved_at* is the monotonic time of the last change of its step."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._clock = context.clock
        self.begin(trains=False)

    def begin(self, *, trains: bool) -> None:
        """Reset for a new start; *trains* is false for a command that does not train, such as `job.setup`."""
        self._trains = trains
        self._stream = Stream()
        self._output = Output(self._context.settings.progress)
        self._reported = ProgressReader()
        self._known = KnownProgress()
        self._source = ""
        self._rate = StepRate()
        self._pauses = SavePauses()
        self._save: Optional[int] = None
        self._began = False
        self._ignored_at: Optional[int] = None
        self.moved_at = self._clock.monotonic()
        self._context.events.begin(self._clock.now())

    @property
    def reached(self) -> Optional[int]:
        """Return the step that may prove the end of the training; None if it is only a guess."""
        return self._known.step if self._known.exact else self._saved()

    def take_output(self, data: bytes) -> None:
        """Pass output of the job to the log and the step reader; safe from any thread, never raises."""
        self._context.log.write(data)
        if self._trains:
            self._stream.feed(data)

    def observe(self, resumed: Optional[int], *, last: bool = False) -> None:
        """Update the progress from all sources; *last* means that the job has ended."""
        if not self._trains:
            return
        self._output.read(self._stream.lines(last))
        reported, printed = read_progress(self._context.settings.layout.progress), self._output.now()
        if reported.save_pause is not None and reported.save_pause != self._reported.save_pause:
            # The file keeps its content until the job rewrites it, so the same number is not a second save.
            self._context.save_interval.take_reported(reported.save_pause)
        self._reported = reported
        saved = self._saved()
        now = known(
            reported, printed, self._context.events.newest, saved, resumed, self._context.settings.target
        )
        self._context.heartbeat.warn("job.progress", self._output.message)
        self._measure(now, saved, resumed)
        if now == self._known:
            return
        if now.step is not None and (now.step, now.source) != (self._known.step, self._known.source):
            self._record_step(now, resumed)
        self._known = now
        if now.source != COMMITS or not self._source:
            # A save beyond the last printed step, as at every stop, does not make it a job that prints none.
            self._source = now.source
        rate = self._rate.value if printed.rate is None else printed.rate
        self._context.heartbeat.set(
            step=now.step, loss=now.loss, loss_step=now.loss_step, rate=rate, reported_target_steps=now.total,
            progress_from=self._source,
        )  # fmt: skip
        self._context.heartbeat.warn("loss", "the loss of the job is not a number" if now.odd_loss else "")

    def _saved(self) -> Optional[int]:
        """Return the newest step that the job has saved, on disk or in the bucket; None if saves have no step."""
        steps = (self._context.local.newest, self._context.committer.proven)
        return max((step for step in steps if step is not None), default=None)

    def _measure(self, now: KnownProgress, saved: Optional[int], resumed: Optional[int]) -> None:
        """Measure how long saves stop the training, from when steps and saves are first seen."""
        if now.source != self._known.source:
            self._pauses.forget()
        found: List[float] = []
        if now.step is not None and now.step != self._known.step and now.source not in (EVENTS, COMMITS):
            found += self._pauses.step(self._clock.monotonic(), now.step)
        if saved is not None and saved > max(-1 if n is None else n for n in (self._save, resumed)):
            self._save = saved
            self._context.save_interval.take_save(self._clock.monotonic())
            # A count of saves is not a step.
            if not self._context.heartbeat.get("committed_counted"):
                found += self._pauses.saved(self._clock.monotonic(), saved)
        for seconds in found:
            self._context.save_interval.take_measured(seconds)

    def _record_step(self, now: KnownProgress, resumed: Optional[int]) -> None:
        assert now.step is not None  # noqa: S101 (asked for above)
        if not self._began or now.source != self._known.source:
            self._record_first_step(now.step, resumed)
        elif self._ignored_at is not None and now.step > self._ignored_at:
            # It reports each so many steps: as many came before the first one that it has reported.
            self._context.heartbeat.set(from_step=max(0, 2 * self._ignored_at - now.step))
            self._ignored_at = None
        self._rate.at(self._clock.monotonic(), now.step, now.source)
        # A change of source may repeat the last step, which is no progress.
        if now.step == self._known.step:
            return
        self.moved_at = self._clock.monotonic()
        self._context.heartbeat.time("first_step", again=not self._began)
        self._context.heartbeat.set(progress_at=self._clock.now())
        self._began = True

    def _record_first_step(self, step: int, resumed: Optional[int]) -> None:
        """Record the first step after a start, and report a job that did not resume from its checkpoint."""
        # If saves are only counted, the number is a guess and proves nothing.
        counted = bool(self._context.heartbeat.get("committed_counted"))
        message, start = "", resumed or 0
        self._ignored_at = None
        if resumed is not None and step < resumed and not counted:
            self._ignored_at, start = step, max(0, step - 1)
            message = ignored_message(step, resumed, self._context.local.restored)
        if message and message != self._context.heartbeat.get("ignored_message"):
            say(message)
            self._context.log.say(message)
        self._context.heartbeat.set(began_step=step, from_step=start, ignored_message=message)
