"""Determine how often the job should save: a fixed interval, or one learnt during the run."""

from __future__ import annotations

import json
import threading
from math import isfinite
from statistics import median
from typing import Any, List, Optional, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent
from orchestrator.contract.bucket.heartbeat_keys import with_current_keys
from orchestrator.contract.bucket.object_names import CAPACITY
from orchestrator.contract.bucket.object_names import HEARTBEAT as PREFIX
from orchestrator.contract.clock import Clock
from orchestrator.contract.interval import (
    PRIOR_SAVE_PAUSE,
    RECENT,
    SHORTEST_PAUSE,
    UNKNOWN_ZONE,
    WorkPeriod,
    save_interval,
    time_between_interruptions,
    zone_preemptions,
)
from orchestrator.contract.phase import Phase
from orchestrator.contract.replacing import write_atomically

WORTH_TELLING = 0.05
"""Share by which the interval must change before the job is told: each change is a write."""
SAVES = 9
HEARTBEATS = 2
LEARNT = ("measured", "reported")


class SaveIntervalTracker:
    """
    The interval between saves, from the save pause and the lifetime of machines.

    Lifetimes come from the last heartbeats of earlier machines, from every start of the job on this one, and
    from the zone statistics in the bucket, which the controller maintains for TPUs of this type.
    """

    def __init__(
        self, settings: Settings, bucket: JobBucket, heartbeat: HeartbeatContent, clock: Clock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._bucket = bucket
        self._heartbeat = heartbeat
        self._lock = threading.Lock()
        self._earlier: Optional[Tuple[WorkPeriod, ...]] = None
        self._before: Optional[Tuple[float, str]] = None
        self._zone = UNKNOWN_ZONE
        self._here: List[WorkPeriod] = []
        self._reported: List[float] = []
        self._pauses: List[float] = []
        self._measured = 0
        self._came: List[float] = []
        self._began: Optional[float] = None
        self._written = 0.0

    def seconds(self) -> Optional[float]:
        """Return the seconds between two saves, None if the job decides."""
        every = self._settings.checkpoints.every
        if every != "auto":
            return float(every) if every else None
        save_pause, _ = self._save_pause()
        with self._lock:
            lasts = median(self._reported) if self._reported else 0.0
        return save_interval(
            save_pause,
            self._between_interruptions(),
            max(lasts, self._heartbeat.get("commit_seconds") or 0.0),
        )

    def _between_interruptions(self) -> float:
        with self._lock:
            # The current run counts too: with ended runs only, the estimate would be too short.
            began = self._began
            now = (
                []
                if began is None
                else [WorkPeriod(self._clock.monotonic() - began, lost=False, ended=False)]
            )
            return time_between_interruptions([*(self._earlier or ()), *self._here, *now], self._zone)

    def _save_pause(self) -> Tuple[float, str]:
        """Return the seconds for which a save stops the training, and where that figure comes from."""
        declared = self._settings.checkpoints.save_pause
        with self._lock:
            reported = max(SHORTEST_PAUSE, median(self._reported)) if self._reported else None
            pause = max(SHORTEST_PAUSE, median(self._pauses)) if self._pauses else None
        # A job may report the time of a write that ran in a thread beside the training, so the shorter one counts.
        if pause is not None and (reported is None or pause < reported):
            return pause, "measured"
        if reported is not None:
            return reported, "reported"
        if self._before is not None:
            return self._before
        return (PRIOR_SAVE_PAUSE, "assumed") if declared is None else (declared, "declared")

    def begin(self) -> None:
        """Start measuring how long the job's process works."""
        with self._lock:
            self._began = self._clock.monotonic()
            self._came = []

    def end(self, *, lost: bool) -> None:
        """Stop measuring; *lost* means that steps after the last checkpoint are lost."""
        with self._lock:
            if self._began is not None:
                self._here.append(WorkPeriod(self._clock.monotonic() - self._began, lost))
            self._began = None

    def take_reported(self, seconds: float) -> None:
        """Add a pause for a save as reported by the job, in seconds."""
        with self._lock:
            self._reported = [*self._reported, max(0.0, seconds)][-SAVES:]
        self._report()

    def take_measured(self, seconds: float) -> None:
        """Add a pause for a save as measured by the agent, in seconds."""
        with self._lock:
            self._pauses = [*self._pauses, seconds][-SAVES:]
            self._measured += 1
            # Not their sum: a computer that is busy beside a save makes that one seem long, and none seem short.
            usually = median(self._pauses)
        self._heartbeat.set(save_pauses=round(usually * self._measured, 3), measured_saves=self._measured)
        self._report()

    def take_save(self, now: float) -> None:
        """Record that a save was found at *now*; the heartbeat then shows the actual interval."""
        with self._lock:
            self._came = [*self._came, now][-SAVES:]
            apart = [b - a for a, b in zip(self._came, self._came[1:])]  # noqa: B905 (Python 3.8)
        if len(apart) > 1:
            self._heartbeat.set(observed_save_interval=round(median(apart), 1))

    def _report(self) -> None:
        """Put the save pause into the heartbeat, also if the job decides when to save."""
        pause, whence = self._save_pause()
        self._heartbeat.set(save_pause=round(pause, 3), save_pause_from=whence)

    def write(self) -> None:
        """Write the interval to the job's file, if it has changed noticeably. Raise AgentError or OSError."""
        auto = self._settings.checkpoints.every == "auto"
        if auto and self._earlier is None:
            self._earlier = self._periods()
        if auto:
            held = self._bucket.read(CAPACITY)
            self._zone = zone_preemptions(
                held.data if held else b"", self._settings.zone, self._settings.tpu_type
            )
        seconds = self.seconds()
        if seconds is None or abs(seconds - self._written) <= WORTH_TELLING * self._written:
            return
        # Atomically, since the job may read it at any moment.
        write_atomically(self._settings.layout.save_interval, f"{seconds:.0f}\n")
        self._written = seconds
        self._heartbeat.set(save_interval=round(seconds))
        if auto:
            self._report()
            self._heartbeat.set(time_between_interruptions=round(self._between_interruptions()))

    def _periods(self) -> Tuple[WorkPeriod, ...]:
        """Return the periods of work of earlier machines, from the last heartbeats of their worker 0."""
        numbers = []
        for name in self._bucket.list(PREFIX):
            incarnation, _, worker = name[len(PREFIX) :].partition("/")
            if worker == "0" and incarnation.isdigit() and int(incarnation) < self._settings.incarnation:
                numbers.append(int(incarnation))
        periods = []
        for number in sorted(numbers)[-RECENT:]:
            held = self._bucket.read(f"{PREFIX}{number}/0")
            period = _period(held.data) if held is not None else None
            # So that a new machine need not measure the save pause first.
            self._before = (_save_pause_in(held.data) if held is not None else None) or self._before
            if period is not None:
                periods.append(period)
        return tuple(periods)


def _save_pause_in(data: bytes) -> Optional[Tuple[float, str]]:
    """Return the save pause and its source from a last heartbeat, None if it was neither measured nor reported."""
    try:
        heartbeat = with_current_keys(json.loads(data))
        pause, whence = float(heartbeat["save_pause"]), heartbeat["save_pause_from"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    return (max(SHORTEST_PAUSE, pause), whence) if whence in LEARNT and isfinite(pause) else None


def _period(data: bytes) -> Optional[WorkPeriod]:
    """Return a machine's period from its last heartbeat, None if it has none or is unreadable."""
    try:
        heartbeat: Any = json.loads(data)
        spawned, at = heartbeat["timings"]["spawned"], heartbeat["at"]
        # A killed machine's last heartbeat says "run"; a fresh save in it does not prove that nothing was lost.
        rested = heartbeat["phase"] in (Phase.STOPPED, Phase.ENDED, Phase.DONE)
        saved = int(heartbeat.get("step") or 0) <= int(heartbeat.get("committed_step") or 0)
        return WorkPeriod(max(0.0, float(at) - float(spawned)), lost=not (rested and saved))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
