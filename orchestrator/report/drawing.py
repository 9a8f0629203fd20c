"""
Numbers for inline SVG: times and values as shares of a drawing's width and height.

Bars and words are placed in percent, so that a drawing fits any width while its words keep their size.
"""

from dataclasses import dataclass
from datetime import datetime, timezone
from math import floor, log10

from orchestrator.report.curve import Losses
from orchestrator.report.timeline import KINDS, Timeline

LEAST = 0.3
"""Least width of a bar in percent, so that a short one can be seen."""
HIGH, WIDE = 200, 1000
"""Size of the drawing of a curve in its own units."""
TICKS = 4


@dataclass(frozen=True)
class Tick:
    """Hold one mark of an axis: *at* in percent, *anchor* as SVG wants it."""

    at: float
    text: str
    anchor: str = "middle"


def clock_text(at: float, *, day: bool = False, seconds: bool = False) -> str:
    """Return a time of day in UTC, with the date where *day* says so."""
    shape = ("%m-%d " if day else "") + ("%H:%M:%S" if seconds else "%H:%M")
    return datetime.fromtimestamp(at, timezone.utc).strftime(shape)


def time_ticks(since: float, until: float) -> list[Tick]:
    """Return the marks of an axis of time."""
    span = until - since
    ends = {0: "start", TICKS: "end"}
    return [
        Tick(
            100 * n / TICKS,
            clock_text(since + span * n / TICKS, day=span > 86400, seconds=span < 1800),
            ends.get(n, "middle"),
        )
        for n in range(TICKS + 1)
    ]


def lanes(drawn: Timeline) -> list[dict[str, object]]:
    """Return each machine's line: bars and marks with their places in percent."""
    span = drawn.until - drawn.since

    def place(at: float) -> float:
        return round(100 * (at - drawn.since) / span, 3)

    return [
        {
            "name": lane.name,
            "zone": lane.zone,
            "steps": lane.steps,
            "lives": lane.lives,
            "bars": [
                {
                    "x": place(bar.since),
                    "width": max(LEAST, round(place(bar.until) - place(bar.since), 3)),
                    "kind": bar.kind,
                    "text": KINDS[bar.kind],
                    "seconds": bar.until - bar.since,
                }
                for bar in lane.bars
            ],
            "marks": [
                {"x": min(99.2, max(0.8, place(m.at))), "kind": m.kind, "at": m.at} for m in lane.marks
            ],
        }
        for lane in drawn.lanes
    ]


def curve(found: Losses) -> dict[str, object] | None:
    """Return the polylines of the curve, one for each incarnation, and its axes; None without two points."""
    points = [point for part in found.values() for point in part]
    # One step has no width to divide by.
    if len({step for step, _ in points}) < 2:
        return None
    low, high = min(y for _, y in points), max(y for _, y in points)
    # Never 0, also for a flat curve and for one at 0: it is divided by below.
    room = (high - low or abs(high) or 1.0) * 0.05
    low, high = low - room, high + room
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def x(step: int) -> float:
        return round(WIDE * (step - first) / (last - first), 2)

    def y(loss: float) -> float:
        return round(HIGH * (high - loss) / (high - low), 2)

    lines = [
        {
            "incarnation": number,
            "points": " ".join(f"{x(step)},{y(loss)}" for step, loss in part),
            "resumes": round(100 * x(part[0][0]) / WIDE, 2),
        }
        for number, part in found.items()
    ]
    steps = sorted({first, *(round(first + (last - first) * n / TICKS) for n in range(1, TICKS)), last})
    anchors = {first: "start", last: "end"}
    return {
        "lines": lines,
        "xs": [Tick(x(step) * 100 / WIDE, f"{step}", anchors.get(step, "middle")) for step in steps],
        "ys": [Tick(y(value) * 100 / HIGH, f"{value:g}") for value in _round_values(low, high)],
        "wide": WIDE,
        "high": HIGH,
    }


def _round_values(low: float, high: float) -> list[float]:
    """Return three to six round numbers between two values."""
    raw = (high - low) / 4
    size = 10.0 ** floor(log10(raw))
    step = next((factor * size for factor in (1, 2, 5, 10) if factor * size >= raw), 10 * size)
    start = floor(low / step) + 1
    values = [round(n * step, 10) for n in range(start, start + 12)]
    return [value for value in values if low < value < high]
