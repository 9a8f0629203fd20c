"""How often the job is asked to save: fixed by the deployment file, or learnt while it runs."""

from __future__ import annotations

import json
import threading
import time
from math import isfinite
from statistics import median
from typing import Any, List, Optional, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.heartbeat import Status
from orchestrator.agent.settings import Settings
from orchestrator.contract.interval import (
    PRIOR_SAVE,
    RECENT,
    UNKNOWN_ZONE,
    Life,
    expected_life,
    saving_interval,
    zone_lives,
)
from orchestrator.contract.object_names import CAPACITY
from orchestrator.contract.object_names import HEARTBEAT as PREFIX
from orchestrator.contract.replacing import write_atomically

WORTH_TELLING = 0.05
SAVES = 9
LOOKS = 2
LEARNT = ("measured", "reported")
RESOLUTION = 0.1
"""Seconds between two looks at the job's step: a save that seems shorter may be as long, and is never free."""


class Pace:
    """
    Know the seconds between two saves, from how long saves stop the job and how long its machines live.

    The last reports of earlier machines tell their lives; of this machine every start of the job counts. What
    TPUs of this type have lived in this zone is in the bucket, where the controller keeps it up to date.
    """

    def __init__(self, settings: Settings, bucket: JobBucket, status: Status) -> None:
        self._settings = settings
        self._bucket = bucket
        self._status = status
        self._lock = threading.Lock()
        self._earlier: Optional[Tuple[Life, ...]] = None
        self._before: Optional[Tuple[float, str]] = None
        self._zone = UNKNOWN_ZONE
        self._here: List[Life] = []
        self._reported: List[float] = []
        self._stalls: List[float] = []
        self._stalled = 0.0
        self._came: List[float] = []
        self._began: Optional[float] = None
        self._written = 0.0

    def seconds(self) -> Optional[float]:
        """Return the seconds between two saves, or None if the job decides."""
        every = self._settings.checkpoints.every
        if every != "auto":
            return float(every) if every else None
        cost, _ = self._cost()
        with self._lock:
            lasts = median(self._reported) if self._reported else 0.0
        return saving_interval(
            cost, self._between_losses(), max(lasts, self._status.get("commit_seconds") or 0.0)
        )

    def _between_losses(self) -> float:
        with self._lock:
            # The current run counts too: if only ended ones did, the interval would be too short.
            began = self._began
            now = [] if began is None else [Life(time.monotonic() - began, lost=False, ended=False)]
            return expected_life([*(self._earlier or ()), *self._here, *now], self._zone)

    def _cost(self) -> Tuple[float, str]:
        """Return the seconds for which a save stops the training, and the source of that figure."""
        declared = self._settings.checkpoints.save_seconds
        with self._lock:
            reported = max(RESOLUTION, median(self._reported)) if self._reported else None
            stall = max(RESOLUTION, median(self._stalls)) if self._stalls else None
        # A job may report the time of writing although a thread wrote and the training went on: the shorter counts.
        if stall is not None and (reported is None or stall < reported):
            return stall, "measured"
        if reported is not None:
            return reported, "reported"
        if self._before is not None:
            return self._before
        return (PRIOR_SAVE, "assumed") if declared is None else (declared, "declared")

    def begin(self) -> None:
        """Start counting the life of the job's process."""
        with self._lock:
            self._began = time.monotonic()
            self._came = []

    def end(self, *, lost: bool) -> None:
        """Stop counting; *lost* says that steps after the last checkpoint are lost."""
        with self._lock:
            if self._began is not None:
                self._here.append(Life(time.monotonic() - self._began, lost))
            self._began = None

    def take_reported(self, seconds: float) -> None:
        """Add how long a save stopped the training, as the job reports it."""
        with self._lock:
            self._reported = [*self._reported, max(0.0, seconds)][-SAVES:]
        self._report()

    def take_measured(self, seconds: float) -> None:
        """Add how long a save stopped the training, as the agent measured it."""
        with self._lock:
            self._stalls = [*self._stalls, seconds][-SAVES:]
            self._stalled += seconds
        self._status.set(save_stalled=round(self._stalled, 3))
        self._report()

    def take_save(self, now: float) -> None:
        """Record that a save was found *now*: the time between saves shows whether the job keeps the interval."""
        with self._lock:
            self._came = [*self._came, now][-SAVES:]
            apart = [b - a for a, b in zip(self._came, self._came[1:])]  # noqa: B905 (Python 3.8)
        if len(apart) > 1:
            self._status.set(save_apart=round(median(apart), 1))

    def _report(self) -> None:
        """Put the cost of a save into the heartbeat, also if the job decides when it saves."""
        cost, whence = self._cost()
        self._status.set(save_cost=round(cost, 3), save_cost_from=whence)

    def write(self) -> None:
        """Write the interval to the file that the job reads, if it has changed. Raises AgentError or OSError."""
        auto = self._settings.checkpoints.every == "auto"
        if auto and self._earlier is None:
            self._earlier = self._lives()
        if auto:
            held = self._bucket.read(CAPACITY)
            self._zone = zone_lives(held.data if held else b"", self._settings.zone, self._settings.tpu_type)
        seconds = self.seconds()
        if seconds is None or abs(seconds - self._written) <= WORTH_TELLING * self._written:
            return
        # Atomically: the job may read it at any moment.
        write_atomically(self._settings.layout.save_every, f"{seconds:.0f}\n")
        self._written = seconds
        self._status.set(save_every=round(seconds))
        if auto:
            self._report()
            self._status.set(save_life=round(self._between_losses()))

    def _lives(self) -> Tuple[Life, ...]:
        """Read the lives of earlier machines from the last reports of their worker 0."""
        numbers = []
        for name in self._bucket.list(PREFIX):
            incarnation, _, worker = name[len(PREFIX) :].partition("/")
            if worker == "0" and incarnation.isdigit() and int(incarnation) < self._settings.incarnation:
                numbers.append(int(incarnation))
        lives = []
        for number in sorted(numbers)[-RECENT:]:
            held = self._bucket.read(f"{PREFIX}{number}/0")
            life = _life(held.data) if held is not None else None
            # A new machine need not learn again what a save of this job costs.
            self._before = (_cost_in(held.data) if held is not None else None) or self._before
            if life is not None:
                lives.append(life)
        return tuple(lives)


def _cost_in(data: bytes) -> Optional[Tuple[float, str]]:
    """Return what a save has cost by a last report and whence that was known, None where it was not."""
    try:
        report: Any = json.loads(data)
        cost, whence = float(report["save_cost"]), report["save_cost_from"]
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return (max(RESOLUTION, cost), whence) if whence in LEARNT and isfinite(cost) else None


def _life(data: bytes) -> Optional[Life]:
    """Return the life that a last report tells of, None when the job never ran or nobody can read it."""
    try:
        report: Any = json.loads(data)
        spawned, at = report["timings"]["spawned"], report["at"]
        # A machine that was killed said last that it runs; that its last save was fresh then proves nothing.
        rested = report["phase"] in ("stopped", "ended", "done")
        saved = int(report.get("step") or 0) <= int(report.get("committed_step") or 0)
        return Life(max(0.0, float(at) - float(spawned)), lost=not (rested and saved))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
