"""
The loss of a job by step: from what the watcher saw, from the job's own log, and from the last reports.
"""

import re
from collections.abc import Iterable, Sequence
from math import isfinite

from orchestrator.core.world import Heartbeat

LINE = re.compile(r"\bstep[\s=:]+(\d+)\b.*?\bloss[\s=:]+([-+]?[\d.]+(?:e[-+]?\d+)?)", re.IGNORECASE)
"""How a line of a log tells step and loss: `step 12 loss 3.4`, `step=12, loss=3.4e-1`."""
FEW = 30
"""Points of the watcher below which the job's log is read too."""
MOST = 800

Losses = dict[int, list[tuple[int, float]]]
"""(step, loss) in the order of steps, by incarnation."""


def losses(
    seen: Iterable[tuple[float, int, float | None, int]], beats: Sequence[Heartbeat],
    lines: Iterable[tuple[int, str]] = (),
) -> Losses:  # fmt: skip
    """
    Return the curve of each incarnation; *lines* are (incarnation, line) of the job's log.
    """
    found: dict[int, dict[int, float]] = {}

    def add(incarnation: int, step: int, loss: float | None) -> None:
        if loss is not None and isfinite(loss):
            found.setdefault(incarnation, {})[step] = loss

    for incarnation, line in lines:
        if match := LINE.search(line):
            add(incarnation, int(match[1]), _number(match[2]))
    for _, step, loss, incarnation in seen:
        add(incarnation, step, loss)
    for beat in beats:
        if beat.worker == 0 and beat.step is not None:
            add(beat.incarnation, beat.step, beat.loss)
    return {incarnation: _thinned(sorted(points.items())) for incarnation, points in sorted(found.items())}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """
    Return at most MOST of the points, evenly, the last one among them.
    """
    stride = -(-len(points) // MOST)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]
