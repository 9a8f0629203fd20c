"""For how long saves stop the training: by when steps are made, whatever else a save still does meanwhile."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Deque, List, Optional, Tuple

MOST_STEPS = 8192
"""Steps whose times are remembered: at ten looks a second those of a quarter of an hour."""
USUAL = 200
"""Spans between two known steps from which it is learnt how long a step takes ..."""
FEWEST = 8
"""... and fewer than these tell nothing: where each span holds a save, a step cannot be told from a save."""
LATE = 900.0
"""Seconds after its step by which a save must be seen, else its number counts something else than steps."""
PENDING = 8


class SaveStalls:
    """
    Measure by how much longer than usual the steps around a save took.

    A save that another thread writes while steps go on costs next to nothing, however long it lasts. What the
    job does beside each save, as an evaluation at the same step, cannot be told from it.
    """

    def __init__(self) -> None:
        self._steps: Deque[Tuple[float, int]] = deque(maxlen=MOST_STEPS)
        self._pending: Deque[Tuple[float, int]] = deque(maxlen=PENDING)
        self._saves: Deque[int] = deque(maxlen=USUAL)

    def forget(self) -> None:
        """Forget everything, because the job starts again or another source tells its step."""
        self._steps.clear()
        self._pending.clear()
        self._saves.clear()

    def step(self, now: float, step: int) -> List[float]:
        """Note that *step* was first seen *now*; return what has become known by that, in seconds for each save."""
        if self._steps and step <= self._steps[-1][1]:
            self.forget()  # The job counts anew.
        self._steps.append((now, step))
        return self._settled()

    def saved(self, now: float, step: int) -> List[float]:
        """Note that a save of *step* was first seen *now*, and return the same."""
        self._saves.append(step)
        self._pending.append((now, step))
        return self._settled()

    def _settled(self) -> List[float]:
        """Return the stalls of the saves after which the job has gone on."""
        found: List[float] = []
        while self._pending and self._steps and self._steps[-1][1] > self._pending[0][1] + 1:
            found_at, save = self._pending.popleft()
            stall = self._stall(save, found_at)
            found += [] if stall is None else [stall]
        return found

    def _stall(self, save: int, found_at: float) -> Optional[float]:
        # Some programs report a step before its save and some after it, some count from 0 and some from 1.
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
        """Return the seconds that a step takes where there was no save."""
        steps = list(self._steps)[max(0, until - USUAL) : until + 1]
        spans = [
            (ended - began) / (last - first)
            for (began, first), (ended, last) in zip(steps, steps[1:])  # noqa: B905, RUF007 (Python 3.8)
            if not any(first - 1 <= save <= last + 1 for save in self._saves)
        ]
        return median(spans) if len(spans) >= FEWEST else None
