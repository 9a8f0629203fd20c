"""
Compute inline SVG: times and values as shares of a drawing's width and height.

Bars and words are placed in percent, so that a drawing fits any width while its words keep their size.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from math import ceil, floor, log10
from typing import Any

from orchestrator.report.curve_points import Losses
from orchestrator.report.timeline import MarkKind, Timeline

LEAST = 0.3
"""Least width of a bar in percent, so that short ones are visible."""
WIDE, HIGH, LOW = 1000, 200, 120
"""Width and heights of curve drawings, in their own units."""
HOVER = 100
"""Most points of a curve that show their values under the mouse."""
MAX_TICKS = 5
"""Most parts of an axis: more words do not fit on a phone."""
SIGNS = {MarkKind.PREEMPTED: "\N{MULTIPLICATION SIGN}", MarkKind.FAILED: "!", MarkKind.DONE: "✓"}
"""The sign of each mark, in the drawing and in the legend below it."""
_DAY = 86400
_TIMES = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 90 * _DAY, 365 * _DAY, 3650 * _DAY,
)  # fmt: skip
"""Seconds between two marks of a time axis."""
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True)
class Tick:
    """One mark of an axis: *at* in percent, *anchor* as SVG wants it."""

    at: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Axis:
    """The two ends of an axis, which always differ, and the round numbers on it."""

    low: float
    high: float
    values: tuple[float, ...]
    step: float

    def position(self, value: float) -> float:
        """Return the position of a value in percent from the low end, clipped to the drawing."""
        return round(min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low))), 3)

    def text(self, value: float) -> str:
        """Return a number of this axis with enough digits to differ from the next one."""
        large = next(((size, sign) for size, sign in _LARGE if abs(value) >= size), None)
        if large and abs(value) < 1e15:
            return f"{value / large[0]:.4g}{large[1]}"
        digits = max(0, -floor(log10(self.step)))
        return f"{value:,.{digits}f}" if digits <= 6 and abs(value) < 1e15 else f"{value:.6g}"


def axis(low: float, high: float, *, outwards: bool = True) -> Axis:
    """Return an axis for values from *low* to *high*; with *outwards* its ends are round numbers."""
    # Never a width of 0, not even for a flat curve at 0. A curve that differs only in the last digits of a float
    # has no round numbers between its ends.
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = (abs(high) or 1.0) * 0.05
        low, high = low - room, high + room
    raw = (high - low) / MAX_TICKS
    size = 10.0 ** floor(log10(raw))
    step = next((factor * size for factor in (1, 2, 5) if factor * size >= raw), 10 * size)
    first, last = ceil(low / step), floor(high / step)
    if outwards:
        first, last = floor(low / step), ceil(high / step)
        low, high = first * step, last * step
    values = tuple(float(f"{n * step:.12g}") for n in range(first, min(last, first + 12) + 1))
    return Axis(low, high, values, step)


def across(found: Axis, step_text: Callable[[float], str]) -> list[Tick]:
    """Return the marks of a horizontal axis; words at its ends stay inside."""
    marks = ((found.position(value), step_text(value)) for value in found.values)
    return [Tick(at, text, "start" if at < 4 else "end" if at > 96 else "middle") for at, text in marks]


def time_ticks(since: float, until: float) -> list[Tick]:
    """Return the marks of an axis of time in UTC: round times, and the date where a day begins."""
    step = next((one for one in _TIMES if (until - since) / one < MAX_TICKS), _TIMES[-1])
    first = ceil(since / step)
    times = tuple(float(n * step) for n in range(first, floor(until / step) + 1))[: 2 * MAX_TICKS]
    dated = until - since > _DAY
    return across(Axis(since, until, times, step), lambda at: time_text(at, seconds=step < 60, dated=dated))


def time_text(at: float, *, seconds: bool = False, dated: bool = False) -> str:
    """Return a time of day in UTC; with *dated*, midnight is shown as the date of the new day."""
    moment = datetime.fromtimestamp(at, timezone.utc)
    if dated and at % _DAY == 0:
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M:%S}" if seconds else f"{moment:%H:%M}"


def lanes(drawn: Timeline) -> list[dict[str, Any]]:
    """Return each machine's lane: bars and marks with their positions in percent."""
    position = Axis(drawn.since, drawn.until, (), 1).position
    return [
        {
            "name": lane.name,
            "zone": lane.zone,
            "steps": lane.steps,
            "exists": lane.exists,
            "bars": [
                {
                    "x": position(bar.since),
                    "width": max(LEAST, round(position(bar.until) - position(bar.since), 3)),
                    "kind": "vm" if lane.number is None else bar.use.name.lower(),
                    "text": "VM runs" if lane.number is None else bar.use.value,
                    "seconds": bar.until - bar.since,
                }
                for bar in lane.bars
            ],
            "marks": [
                {
                    "x": min(99.2, max(0.8, position(m.at))),
                    "sign": SIGNS[m.kind],
                    "kind": m.kind.value,
                    "at": m.at,
                }
                for m in lane.marks
            ],
        }
        for lane in drawn.lanes
    ]


def progress(
    points: Iterable[tuple[float, int, float | None, int]], drawn: Timeline, target: int | None,
    dashed: Collection[int] = (),
) -> dict[str, Any] | None:  # fmt: skip
    """
    Return the steps by time, with their axis, for below the lanes; None without two points.

    The lines of the TPUs *dashed* are.
    """
    parts: dict[int, list[tuple[float, float]]] = {}
    for at, step, _, number in points:
        if drawn.since <= at <= drawn.until and step < 10**15:
            parts.setdefault(number, []).append((at, float(step)))
    steps = [step for part in parts.values() for _, step in part]
    if len(steps) < 2:
        return None
    whole = max(*steps, float(target or 0) if target and target < 20 * max(steps) else 0.0)
    return _plot(
        parts, Axis(drawn.since, drawn.until, (), 1), axis(0.0, whole), lambda at: time_text(at, seconds=True),
        dashed, LOW,
    )  # fmt: skip


def curve(found: Losses, dashed: Collection[int] = ()) -> dict[str, Any] | None:
    """Return the lines of the loss, one for each incarnation, and its axes; None without two steps."""
    points = [point for part in found.values() for point in part]
    # A single step has no width to divide by.
    if len({step for step, _ in points}) < 2:
        return None
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    across_ = axis(float(first if first > last / 10 else 0), float(last), outwards=False)
    upwards = axis(min(y for _, y in points), max(y for _, y in points))
    parts = {number: [(float(step), loss) for step, loss in part] for number, part in found.items()}
    drawn = _plot(parts, across_, upwards, lambda step: f"step {step:,.0f}", dashed)
    step, loss = min(points, key=lambda point: point[1])
    lowest = {
        "x": across_.position(step),
        "y": 100 - upwards.position(loss),
        "text": f"{loss:.4g} at step {step:,}",
    }
    return {**drawn, "xs": across(across_, across_.text), "lowest": lowest, "position": across_.position}


def _plot(
    parts: Mapping[int, Sequence[tuple[float, float]]], wide: Axis, high: Axis, name: Callable[[float], str],
    dashed: Collection[int], tall: int = HIGH,
) -> dict[str, Any]:  # fmt: skip
    """Return lines through the points of *parts*, one for each TPU, and some points for the mouse."""
    every = [point for part in parts.values() for point in part]
    return {
        "lines": [
            {
                "number": number,
                "dashed": number in dashed,
                "points": " ".join(
                    f"{wide.position(x) * WIDE / 100:.2f},{(100 - high.position(y)) * tall / 100:.2f}"
                    for x, y in part
                ),
            }
            for number, part in parts.items()
        ],
        "ys": [Tick(100 - high.position(value), high.text(value)) for value in high.values],
        "hover": [
            {"x": wide.position(x), "y": round(100 - high.position(y), 3), "text": f"{y:,.5g} at {name(x)}"}
            for x, y in every[:: -(-len(every) // HOVER)]
        ],
        "lowest": None,
        "wide": WIDE,
        "high": tall,
    }
