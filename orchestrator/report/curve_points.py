"""Compute the loss of a job by step, from the watcher's points, the job's log, and the last heartbeats."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.contract.agent_lines import begins_attempt
from orchestrator.contract.phase import Phase
from orchestrator.contract.printed.choose import Output
from orchestrator.contract.printed.numbers import usable
from orchestrator.contract.printed.stream import Stream
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.pricing.use_spans import BEFORE

FEW = 30
"""Points of the watcher below which the job's log is read as well."""
MAX_POINTS = 800
SMALLEST = 1e-30
"""Smaller losses are drawn as 0, because the marks of an axis would be too small for a float."""

Losses = dict[int, list[tuple[int, float]]]
"""(step, loss) in the order of steps, by incarnation."""


@dataclass
class PrintedLines:
    """What the lines of a log have shown so far, by incarnation, and the parser for the next ones."""

    points: dict[int, dict[int, float | None]] = field(default_factory=dict)
    outputs: dict[int, Output] = field(default_factory=dict)

    def add(self, lines: Iterable[tuple[int, str]], progress: str = "auto") -> None:
        """Add what (incarnation, line) of the log show, parsed as in the agent, by the setting *progress*."""
        for incarnation, step, loss in printed(lines, progress, self.outputs):
            self.points.setdefault(incarnation, {})[step] = loss


def losses(
    observed: Iterable[tuple[float, int, float | None, int]], heartbeats: Sequence[Heartbeat],
    lines: Iterable[tuple[int, str]] = (), progress: str = "auto", before: PrintedLines | None = None,
) -> Losses:  # fmt: skip
    """
    Return the curve of each incarnation; *lines* are (incarnation, line) of the job's log.

    They are parsed as in the agent, by the setting *progress*. *before* holds the results so far, so that
    later calls need new lines only.
    """
    before = PrintedLines() if before is None else before
    before.add(lines, progress)
    found: dict[int, dict[int, float]] = {}

    def add(incarnation: int, step: int, loss: float | None) -> None:
        loss = usable(loss)
        loss = 0.0 if loss is not None and abs(loss) < SMALLEST else loss
        # A job prints anything: beyond 2^53 a step is not exact as a float of the drawing.
        if loss is not None and 0 <= step < 10**15:
            found.setdefault(incarnation, {})[step] = loss

    for incarnation, points in before.points.items():
        for step, loss in points.items():
            add(incarnation, step, loss)
    # If the sources differ, later ones overwrite earlier ones: log, watcher, last heartbeat.
    for _, step, loss, incarnation in observed:
        add(incarnation, step, loss)
    for heartbeat in heartbeats:
        if heartbeat.worker == 0 and heartbeat.step is not None:
            add(
                heartbeat.incarnation,
                heartbeat.step if heartbeat.loss_step is None else heartbeat.loss_step,
                heartbeat.loss,
            )
    return {incarnation: _thinned(sorted(points.items())) for incarnation, points in sorted(found.items())}


def printed(
    lines: Iterable[tuple[int, str]], progress: str = "auto", outputs: dict[int, Output] | None = None
) -> Iterable[tuple[int, int, float | None]]:
    """Yield incarnation, step and loss whenever a line of the log shows a new step or loss."""
    outputs = {} if outputs is None else outputs
    for incarnation, line in lines:
        if begins_attempt(line):
            outputs.pop(incarnation, None)
        output = outputs.setdefault(incarnation, Output(progress))
        before, stream = output.now(), Stream()
        stream.feed(line.encode("utf-8", "surrogateescape"))
        output.read(stream.lines(last=True))
        now = output.now()
        if now.step is not None and now != before:
            # A line with a step alone says nothing of the loss there.
            if now.loss_step is not None:
                yield incarnation, now.loss_step, now.loss
            yield incarnation, now.step, now.loss if now.loss_step is None else None


def with_printed_steps(
    heartbeats: Sequence[Heartbeat],
    before: PrintedLines,
    observed: Iterable[tuple[float, int, float | None, int]] = (),
) -> tuple[Heartbeat, ...]:
    """
    Return the reports, each without a step with the furthest step that was printed or observed there.

    A machine that was lost soon after its job began had no time to report; its log came to the bucket. A step that
    an earlier attempt there has made says nothing of the present one, which may have failed before its first step.
    """
    furthest = {incarnation: max(points) for incarnation, points in before.points.items() if points}
    for _, step, _, incarnation in observed:
        furthest[incarnation] = max(step, furthest.get(incarnation, 0))
    return tuple(_trained(heartbeat, furthest.get(heartbeat.incarnation)) for heartbeat in heartbeats)


def with_reported_points(
    points: Sequence[tuple[float, int, float | None, int]], heartbeats: Iterable[Heartbeat]
) -> list[tuple[float, int, float | None, int]]:
    """
    Return the points of (time, step, loss, incarnation), with those that each machine's last report tells of.

    A watcher sees a machine's step only some seconds after its first one, so a line would begin in the air; one
    that has ended sees no more of it. A machine that ran without any watcher has a line by its report alone.
    """
    known_until: dict[int, float] = {}
    for at, _, _, number in points:
        known_until[number] = max(at, known_until.get(number, 0.0))
    reported = [
        (at, step, None, heartbeat.incarnation)
        for heartbeat in heartbeats
        if heartbeat.worker == 0
        for at, step in _reported(heartbeat, known_until.get(heartbeat.incarnation))
    ]
    return sorted([*points, *reported], key=lambda point: (point[3], point[0]))


def _reported(heartbeat: Heartbeat, known_until: float | None) -> list[tuple[float, int]]:
    """Return when and from which step each attempt trained on, and the ends later than *known_until*."""
    if heartbeat.progress_at is None and heartbeat.step is not None:
        # Known from printed lines, which have no times.
        heartbeat = replace(heartbeat, progress_at=heartbeat.updated)
    found = {one.began_at: one.from_step for one in heartbeat.trainings}
    if "first_step" in heartbeat.timings:
        found.setdefault(heartbeat.timings["first_step"], heartbeat.start_step)
    ends = [
        (one.until, one.to_step)
        for one in heartbeat.trainings
        if known_until is None or one.until > known_until
    ]
    return [*found.items(), *ends]


def _trained(heartbeat: Heartbeat, step: int | None) -> Heartbeat:
    if step is None or heartbeat.step is not None or heartbeat.worker:
        return heartbeat
    if step <= max((earlier.to_step for earlier in heartbeat.trained), default=-1):
        return heartbeat
    # Lines have no times: it trained at some time after what it reported last.
    began = heartbeat.timings.get("first_step", heartbeat.timings.get("spawned", heartbeat.updated))
    phase = Phase.RUN if heartbeat.phase in BEFORE else heartbeat.phase
    return replace(heartbeat, step=step, phase=phase, timings={**heartbeat.timings, "first_step": began})


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most MAX_POINTS of the points, evenly spaced, including the last one."""
    stride = -(-len(points) // MAX_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]
