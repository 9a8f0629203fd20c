"""How far the job is, put together from what it reports, prints and saves. Pure, but for reading one file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Tuple

from orchestrator.agent.layout import read_json
from orchestrator.contract.json_values import whole_number
from orchestrator.contract.printed.choice import Printed
from orchestrator.contract.printed.numbers import usable

FILE, EVENTS, COMMITS = "file", "events", "commits"
"""Sources beside those of `printed.choice`: TPUCTL_PROGRESS_FILE, event files of TensorBoard, saves."""

WINDOW = 600.0
"""Seconds over which the rate is measured: long enough to hold saves and evaluations."""
SPACING = 1.0


@dataclass(frozen=True)
class ProgressReader:
    """
    Hold the step and loss that the job reported last, and for how long its last save stopped the training.

    None where it reported none.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    save_seconds: Optional[float] = None


@dataclass(frozen=True)
class Known:
    """
    Hold what is known of the job's progress; *source* says where the step comes from, "" for no step.

    *exact* says that the step is the job's own count, so that it can prove the end or a start from 0.
    *odd_loss* says that the job's loss is no number.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    total: Optional[int] = None
    source: str = ""
    exact: bool = True
    odd_loss: bool = False


def read_progress(path: Path) -> ProgressReader:
    """Return what the file says; anything that is not a number is nothing."""
    value = read_json(path)
    step = whole_number(value.get("step"))
    step = step if step is not None and abs(step) < 10**15 else None
    return ProgressReader(step, _number(value.get("loss")), _number(value.get("save_seconds")))


def known(
    reported: ProgressReader,
    printed: Printed,
    events: ProgressReader,
    saved: Optional[int],
    resumed: Optional[int],
    target: Optional[int],
) -> Known:
    """
    Return the progress by the most trusted source of a step, and the loss by that of a loss.

    *saved* is the newest step that the job has saved, *resumed* the one it was given. A step that is no exact
    count is believed only where it fits them and the *target*: it may begin at 0 again after a restart.
    """
    least = max(resumed or 0, saved or 0, 1)
    newer = saved if saved is not None and saved > (resumed or 0) else None
    loss = next((one for one in (reported.loss, printed.loss, events.loss) if one is not None), None)
    odd = loss is not None and usable(loss) is None

    def made(step: Optional[int], source: str, *, exact: bool = True) -> Known:
        total = printed.total if printed.total is not None and printed.total >= (step or 0) else None
        return Known(step, usable(loss), total, source if step is not None else "", exact, odd)

    if reported.step is not None:
        return made(reported.step, FILE)
    if printed.step is not None and printed.exact:
        return made(max(printed.step, newer or 0), printed.source)
    for step, source in ((printed.step, printed.source), (events.step, EVENTS)):
        if step is not None and least <= step and (target is None or step <= target):
            return made(step, source, exact=False)
    return made(newer, COMMITS)


class StepRate:
    """Measure steps a second over the newest WINDOW seconds; None before two steps were seen some time apart."""

    def __init__(self) -> None:
        self._points: List[Tuple[float, int]] = []
        self._source = ""
        self.value: Optional[float] = None

    def at(self, now: float, step: int, source: str) -> None:
        """Note a step that was seen for the first time *now*, in seconds of a clock that never goes back."""
        if source != self._source or (self._points and step < self._points[-1][1]):
            self._points, self._source, self.value = [], source, None
        first = self._points[0] if self._points else (now, step)
        if now - first[0] >= SPACING:
            self.value = (step - first[1]) / (now - first[0])
        if not self._points or now - self._points[-1][0] >= SPACING:
            self._points.append((now, step))
        while len(self._points) > 2 and now - self._points[0][0] > WINDOW:
            del self._points[0]


def _number(value: Any) -> Optional[float]:
    """Return a finite float or None: NaN is no JSON, and a whole number may be too long for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
