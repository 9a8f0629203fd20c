"""Combine what the job reports, prints and saves into its progress. Pure, except for reading one file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Tuple

from orchestrator.agent.layout import read_json
from orchestrator.contract.json_values import whole_number
from orchestrator.contract.printed.choose import Printed
from orchestrator.contract.printed.numbers import usable

FILE, EVENTS, COMMITS = "file", "events", "commits"
"""Sources besides those of `printed.choice`: TPUCTL_PROGRESS_FILE, TensorBoard event files, saves."""

WINDOW = 600.0
"""Seconds over which the rate is measured, long enough to include saves and evaluations."""
POINT_INTERVAL = 1.0
"""Least seconds between two points of the rate: faster steps would be measured by the noise of the clock."""


@dataclass(frozen=True)
class ProgressReader:
    """The step, loss and pause for a save that the job reported last; None for what it did not report."""

    step: Optional[int] = None
    loss: Optional[float] = None
    save_pause: Optional[float] = None


@dataclass(frozen=True)
class KnownProgress:
    """
    The known progress; *source* says where the step comes from, "" for no step.

    *exact* means that the step is the job's own count, which can prove the end or a start from 0. *odd_loss*
    means that the loss is not a finite number. *loss_step* is the step of the loss if it is an earlier one.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    total: Optional[int] = None
    source: str = ""
    exact: bool = True
    odd_loss: bool = False
    loss_step: Optional[int] = None


def read_progress(path: Path) -> ProgressReader:
    """Return the content of the progress file; values that are not numbers are ignored."""
    value = read_json(path)
    step = whole_number(value.get("step"))
    step = step if step is not None and abs(step) < 10**15 else None
    # `save_seconds` of jobs that were written for an earlier release.
    pause = _number(value.get("save_pause", value.get("save_seconds")))
    return ProgressReader(step, _number(value.get("loss")), pause)


def known(
    reported: ProgressReader,
    printed: Printed,
    events: ProgressReader,
    saved: Optional[int],
    resumed: Optional[int],
    target: Optional[int],
) -> KnownProgress:
    """
    Return the step from the most trusted source that has one, and the loss likewise.

    *saved* is the newest step that the job has saved, *resumed* the one it started from. A step that is not
    exact must be consistent with them and with *target*, since it may start at 0 again after a restart.
    """
    least = max(resumed or 0, saved or 0, 1)
    newer = saved if saved is not None and saved > (resumed or 0) else None
    printed_at = printed.step if printed.loss_step is None else printed.loss_step
    losses = (
        (reported.loss, reported.step, FILE),
        (printed.loss, printed_at, printed.source),
        (events.loss, events.step, EVENTS),
    )
    loss, loss_at, of_loss = next((one for one in losses if one[0] is not None), (None, None, ""))
    odd = loss is not None and usable(loss) is None

    def made(step: Optional[int], source: str, *, exact: bool = True) -> KnownProgress:
        total = printed.total if printed.total is not None and printed.total >= (step or 0) else None
        # A count that is not exact may have started at 0 again: its step is none of another source's.
        fits = source == of_loss or of_loss in (FILE, EVENTS) or printed.exact
        earlier = loss_at if fits and loss_at is not None and step is not None and loss_at < step else None
        return KnownProgress(
            step, usable(loss), total, source if step is not None else "", exact, odd, earlier
        )

    if reported.step is not None:
        return made(reported.step, FILE)
    if printed.step is not None and printed.exact:
        return made(max(printed.step, newer or 0), printed.source)
    for step, source in ((printed.step, printed.source), (events.step, EVENTS)):
        if step is not None and least <= step and (target is None or step <= target):
            return made(step, source, exact=False)
    return made(newer, COMMITS)


class StepRate:
    """Steps per second over the last WINDOW seconds; None until two steps some time apart are known."""

    def __init__(self) -> None:
        self._points: List[Tuple[float, int]] = []
        self._source = ""
        self.value: Optional[float] = None

    def at(self, now: float, step: int, source: str) -> None:
        """Record a step first seen at *now*, in seconds of a monotonic clock."""
        if source != self._source or (self._points and step < self._points[-1][1]):
            self._points, self._source, self.value = [], source, None
        first = self._points[0] if self._points else (now, step)
        if now - first[0] >= POINT_INTERVAL:
            self.value = (step - first[1]) / (now - first[0])
        if not self._points or now - self._points[-1][0] >= POINT_INTERVAL:
            self._points.append((now, step))
        while len(self._points) > 2 and now - self._points[0][0] > WINDOW:
            del self._points[0]


def _number(value: Any) -> Optional[float]:
    """Return a finite float or None: NaN is not valid JSON, and a large integer may overflow a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
