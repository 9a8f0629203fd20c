"""Measure for how long saves stop the training, from the times at which steps are made."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Deque, List, Optional, Tuple

MAX_STEPS = 8192
"""Steps whose times are kept: a quarter of an hour at ten polls a second."""
USUAL = 200
"""Largest number of spans between known steps from which the usual time of a step is computed."""
FEWEST = 8
"""Smallest number of such spans. With fewer, a step cannot be told from a save in each of them."""
LATE = 900.0
"""Seconds after its step within which a save must appear; later, its number does not count steps."""
PENDING = 8


class SavePauses:
    """
    Measures how much longer than usual the steps around a save took.

    A save written by another thread while the training continues hardly stops it, however long it takes.
    Work that the job does together with each save, such as an evaluation, is counted as part of the save.
    """

    def __init__(self) -> None:
        self._steps: Deque[Tuple[float, int]] = deque(maxlen=MAX_STEPS)
        self._pending: Deque[Tuple[float, int]] = deque(maxlen=PENDING)
        self._saves: Deque[int] = deque(maxlen=USUAL)

    def forget(self) -> None:
        """Reset, because the job restarts or another source reports its step."""
        self._steps.clear()
        self._pending.clear()
        self._saves.clear()

    def step(self, now: float, step: int) -> List[float]:
        """Record that *step* was first seen at *now*; return newly measured pauses, in seconds for each save."""
        if self._steps and step <= self._steps[-1][1]:
            self.forget()  # The job has restarted its count.
        self._steps.append((now, step))
        return self._settled()

    def saved(self, now: float, step: int) -> List[float]:
        """Record that a save of *step* was first seen at *now*; return newly measured pauses as `step` does."""
        self._saves.append(step)
        self._pending.append((now, step))
        return self._settled()

    def _settled(self) -> List[float]:
        """Return the pauses of pending saves after which at least two steps were made."""
        found: List[float] = []
        while self._pending and self._steps and self._steps[-1][1] > self._pending[0][1] + 1:
            found_at, save = self._pending.popleft()
            pause = self._pause(save, found_at)
            found += [] if pause is None else [pause]
        return found

    def _pause(self, save: int, found_at: float) -> Optional[float]:
        # Programs differ: some report a step before its save, some after it; some count from 0, some from 1.
        before = [number for number, (_, step) in enumerate(self._steps) if step < save]
        after = next((number for number, (_, step) in enumerate(self._steps) if step > save + 1), None)
        if not before or after is None:
            return None
        (began, first), (ended, last) = self._steps[before[-1]], self._steps[after]
        usual = self._usual(before[-1])
        if (
            usual is None
            or found_at - ended > LATE
            or any(first <= s <= last for s in self._saves if s != save)
        ):
            return None
        return max(0.0, ended - began - (last - first) * usual)

    def _usual(self, until: int) -> Optional[float]:
        """Return the median seconds of a step without a save; None if too few are known."""
        steps = list(self._steps)[max(0, until - USUAL) : until + 1]
        spans = [
            (ended - began) / (last - first)
            for (began, first), (ended, last) in zip(steps, steps[1:])  # noqa: B905, RUF007 (Python 3.8)
            if not any(first - 1 <= save <= last + 1 for save in self._saves)
        ]
        return median(spans) if len(spans) >= FEWEST else None
