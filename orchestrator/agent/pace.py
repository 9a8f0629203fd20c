"""How often the job is asked to save: fixed by the deployment file, or learnt while it runs."""

from __future__ import annotations

import json
import threading
import time
from statistics import median
from typing import Any, List, Optional, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.heartbeat import Status
from orchestrator.agent.settings import Settings
from orchestrator.contract.interval import PRIOR_SAVE, RECENT, Life, saving_interval
from orchestrator.contract.object_names import HEARTBEAT as PREFIX
from orchestrator.contract.replacing import write_atomically

WORTH_TELLING = 0.05
SAVES = 9
LOOKS = 2


class Pace:
    """
    Know the seconds between two saves, from how long saves take and how long machines of this job live.

    The last reports of earlier machines tell their lives; of this machine every start of the job counts.
    """

    def __init__(self, settings: Settings, bucket: JobBucket, status: Status) -> None:
        self._settings = settings
        self._bucket = bucket
        self._status = status
        self._lock = threading.Lock()
        self._earlier: Optional[Tuple[Life, ...]] = None
        self._here: List[Life] = []
        self._saves: List[float] = []
        self._began: Optional[float] = None
        self._written = 0.0

    def seconds(self) -> Optional[float]:
        """Return the seconds between two saves, None when the job decides that."""
        every = self._settings.checkpoints.every
        if every != "auto":
            return float(every) if every else None
        with self._lock:
            # A long quiet run counts while it lasts, else only
            # ends would, and the interval would be too short.
            now = [] if self._began is None else [Life(time.monotonic() - self._began, lost=False)]
            lives = [*(self._earlier or ()), *self._here, *now]
            declared = self._settings.checkpoints.save_seconds
            cost = median(self._saves) if self._saves else PRIOR_SAVE if declared is None else declared
        return saving_interval(cost, lives)

    def begin(self) -> None:
        """Note that the job starts."""
        with self._lock:
            self._began = time.monotonic()

    def end(self, *, lost: bool) -> None:
        """Note that it has ended, and whether it had gone beyond its last checkpoint."""
        with self._lock:
            if self._began is not None:
                self._here.append(Life(time.monotonic() - self._began, lost))
            self._began = None

    def saved(self, seconds: float) -> None:
        """Note for how long a save stopped the training."""
        with self._lock:
            self._saves = [*self._saves, max(0.0, seconds)][-SAVES:]

    def write(self) -> None:
        """Write the interval where the job finds it, if it has changed. Raises AgentError or OSError."""
        if self._earlier is None and self._settings.checkpoints.every == "auto":
            self._earlier = self._lives()
        seconds = self.seconds()
        if seconds is None or abs(seconds - self._written) <= WORTH_TELLING * self._written:
            return
        # The job may read it at any moment.
        write_atomically(self._settings.layout.save_every, f"{seconds:.0f}\n")
        self._written = seconds
        self._status.set(save_every=round(seconds))

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
            if life is not None:
                lives.append(life)
        return tuple(lives)


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
