"""Report this worker's state: a shared value, written to the bucket and to state/status.json."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from orchestrator.agent.cloud.storage import TIMEOUT, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import say
from orchestrator.contract.bucket.heartbeat_keys import with_current_keys
from orchestrator.contract.bucket.object_names import HEARTBEAT, WAKE
from orchestrator.contract.clock import Clock
from orchestrator.contract.heartbeat_pause import heartbeat_pause
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import ENDS, Phase
from orchestrator.contract.replacing import write_atomically
from orchestrator.contract.training import Training, first_timings, joined, trainings

SCHEMA = 1
_UNKNOWN = (
    "step", "from_step", "began_step", "loss", "loss_step", "rate", "reported_target_steps", "committed_step",
    "committed_at", "resumed_from", "exit_code", "progress_at", "save_interval", "save_pause",
    "time_between_interruptions", "observed_save_interval", "save_pauses", "measured_saves",
    "commit_seconds", "uncommitted_complete", "xla_programs_restored", "xla_programs_compiled",
)  # fmt: skip
_UNCOMMITTED = ("uncommitted", "uncommitted_place", "uncommitted_state")
_TEXTS = (
    "progress_from", "save_pause_from", "failure_message", "attempt_message", "ended_message", "aside_message",
    "failure_line", "message", "ignored_message",
    "image", *_UNCOMMITTED,
)  # fmt: skip
_OF_ATTEMPTS = ("failure_message", "attempt_message", "ended_message", "aside_message", "failure_line")
_URGENT = ("phase", "committed_step", "notice", "preempted")
_PASSING = (Phase.BOOT, Phase.RESTORE)
LATER = 1.25
"""Write intervals from the `at` in an earlier agent's report to the next write: it is older than its own write."""
_INHERITED = ("attempt", "attempts")
_SUMS = ("save_pauses", "measured_saves")
"""Fields to which the sums of an earlier agent on the same machine are added."""


def heartbeat_name(incarnation: int, worker: int) -> str:
    """Return the object name of a worker's heartbeat."""
    return f"{HEARTBEAT}{incarnation}/{worker}"


class HeartbeatContent:
    """
    The content of the heartbeat, changed by many threads; *changes* counts the changes.

    *urgent* is called after a change that must be reported at once. *masked* removes secrets from a text.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.changes = 0
        self._warnings: Dict[str, str] = {}
        self._timings: Dict[str, float] = {}
        self._first_timings: Dict[str, float] = {}
        self._trained: List[Training] = []
        self._trained_before: List[Training] = []
        self._sums_before: Dict[str, float] = {}
        self._committed_at: Dict[int, float] = {}
        self._interval = settings.heartbeat_interval
        self._fields: Dict[str, Any] = {
            **dict.fromkeys(_UNKNOWN),
            **dict.fromkeys(
                (
                    "attempt",
                    "attempts",
                    "failures",
                    "ended_failures",
                    "uncommitted_files",
                    "uncommitted_bytes",
                ),
                0,
            ),
            **dict.fromkeys(("notice", "preempted", "committed_counted"), False),
            **dict.fromkeys(_TEXTS, ""),
            "schema": SCHEMA,
            "deployment": settings.deployment,
            "incarnation": settings.incarnation,
            "worker": settings.worker,
            "workers": settings.workers,
            "bundle": settings.bundle,
            "phase": Phase.BOOT,
            "committed_steps": [],
            "host_keys": public_host_keys(),
            "format": "" if settings.checkpoints.format == "auto" else settings.checkpoints.format,
        }
        self.urgent: Callable[[], None] = lambda: None
        self.masked: Callable[[str], str] = str

    def set(self, **changes: Any) -> None:
        """Change fields of the report; a new message is also logged."""
        with self._lock:
            message, phase = changes.get("message"), changes.get("phase", self._fields["phase"])
            is_news = bool(message) and message != self._fields["message"]
            urgent = any(changes.get(key, self._fields[key]) != self._fields[key] for key in _URGENT)
            self._fields.update(changes)
            self.changes += 1
        if is_news:
            say(f"{phase}: {message}")
        if urgent:
            self.urgent()

    def note_commit(self, step: int, steps: List[int]) -> None:
        """Report a commit of *step* made now; *steps* are those of this attempt, newest first."""
        now = self._clock.now()
        with self._lock:
            self._committed_at[step] = now
        self.set(committed_at=now, committed_steps=steps)

    def set_newest(self, newest: Optional[int], **changes: Any) -> None:
        """Change the newest checkpoint to that of this step, with the time of its own commit if made here."""
        with self._lock:
            at = None if newest is None else self._committed_at.get(newest)
        self.set(committed_step=newest, committed_at=at, **changes)

    def inherit(self, before: Mapping[str, Any]) -> None:
        """Take counts from an earlier agent's heartbeat for fields that this agent has not set yet."""
        with self._lock:
            for key in _INHERITED:
                self._fields[key] = self._fields[key] or before.get(key) or 0
            self._first_timings = first_timings(before) or self._first_timings
            # What was trained before the agent was replaced, as by a push, counts as well.
            self._trained_before = trainings(before)
            sums = [before.get(key) for key in _SUMS]
            # Only both: a sum of an older agent without its number of saves would be that of these few.
            numbers = [value for value in sums if isinstance(value, (int, float))]
            self._sums_before = dict(zip(_SUMS, numbers)) if len(numbers) == len(_SUMS) else {}  # noqa: B905 (Python 3.8)

    def close_attempt(self) -> None:
        """Keep the times of the last attempt's training, which the next one overwrites."""
        with self._lock:
            self._first_timings = first_timings(self._with_trainings(self._trained))
            self._trained = joined(trainings(self._with_trainings(self._trained)))

    def _with_trainings(self, trained: List[Training]) -> Dict[str, Any]:
        listed = [list(one) for one in trained]
        first = dict(self._first_timings)
        return dict(self._fields, timings=dict(self._timings), first_timings=first, trained=listed)

    def get(self, name: str) -> Any:
        """Return one field of the next heartbeat; raise KeyError if there is no such field."""
        with self._lock:
            return self._fields[name]

    def time(self, name: str, again: bool = True) -> None:
        """Record the current time under *name* in `timings`; with *again* false, only the first time."""
        with self._lock:
            if again or name not in self._timings:
                self._timings[name] = self._clock.now()

    def pause(self, now: float) -> float:
        """Return the seconds until the next heartbeat, by the time since the last step of the start."""
        with self._lock:
            # The phase changes a moment before the process starts: by that start alone, a pause that begins in
            # between would be the longest one.
            started = max(self._timings.values(), default=-math.inf)
        return heartbeat_pause(now - started, self._interval)

    def warn(self, source: str, text: str) -> None:
        """Report what *source* cannot do at present; an empty text clears it."""
        with self._lock:
            before = self._warnings.get(source, "")
            self._warnings[source] = text
        if text and text != before:
            say(f"{source}: {text}")
        elif before and not text:
            say(f"{source}: works again")

    def body(self) -> Dict[str, Any]:
        """Return the report as it is stored in the heartbeat."""
        with self._lock:
            warnings = [f"{source}: {text}" for source, text in sorted(self._warnings.items()) if text]
            message = "; ".join(part for part in [self._fields["message"], *warnings] if part)
            texts = {"message": message}
            texts.update((key, self._fields[key]) for key in _OF_ATTEMPTS)
            texts = {key: self.masked(text)[:2000] for key, text in texts.items()}
            trained = joined([*self._trained_before, *self._trained])
            sums = {key: (self._fields[key] or 0) + more for key, more in self._sums_before.items()}
            return dict(self._with_trainings(trained), **texts, **sums, at=self._clock.now())


class HeartbeatWriter:
    """Writes the heartbeat at most once a second, the limit of Cloud Storage for one object."""

    def __init__(
        self, settings: Settings, bucket: JobBucket, content: HeartbeatContent, clock: Clock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._bucket = bucket
        self._content = content
        self._lock = threading.Lock()
        self._name = heartbeat_name(settings.incarnation, settings.worker)
        self._write_interval = min(1.0, settings.heartbeat_interval)
        self._last = float("-inf")
        self._reported_at = float("-inf")
        self._reported = -1
        self._before: Optional[Dict[str, Any]] = None
        self._wake = WakeWriter(settings.incarnation, settings.worker, bucket, clock)

    def before(self) -> Dict[str, Any]:
        """Return the last heartbeat of this worker's earlier agent, {} if there is none. Raise AgentError."""
        with self._lock:
            return self._read_before(TIMEOUT)

    def report(self, timeout: Optional[float] = None, at_once: bool = False) -> None:
        """
        Write status.json and the heartbeat object, unless another thread has just written the same.

        *timeout* bounds the upload. *at_once* skips the wait for further changes, since the job waits for
        this call. Raise OSError or AgentError if either cannot be written.
        """
        asked, wanted = self._clock.monotonic(), self._content.changes
        if not at_once:
            # One write a second is the limit, so changes that follow at once go into the same write.
            self._clock.wait(self._gathers())
        with self._lock:
            if self._reported >= wanted if at_once else self._reported_at >= asked:
                return
            bound = timeout if timeout is not None else max(5.0, self._settings.heartbeat_interval)
            began = self._clock.monotonic()
            try:
                write_atomically(self._settings.layout.status, _text(self._content.body()) + "\n")
            finally:
                # Read before the first write overwrites it: a machine that lost its disk learns its past from it.
                self._content.inherit(self._read_before(bound))
                self._clock.wait(self._rest())  # sooner, the bucket answers 429
                changes, body = self._content.changes, self._content.body()
                self._bucket.write(self._name, _text(body).encode(), timeout=bound)
                self._last, self._reported_at, self._reported = self._clock.monotonic(), began, changes
            # After the write: the controller that this wakes must find the new heartbeat. Under the lock: a
            # thread that finds the last heartbeat written ends the agent, and with it this thread before its call.
            self._wake.write_if_urgent(body, bound)

    def _gathers(self) -> float:
        """
        Return the seconds to collect changes before a write.

        A short phase is usually followed by the next one at once, and a step that reaches the target by the end
        of the job. Then only that is reported, and the job does not wait a second until the object may be
        written again.
        """
        phase, target = self._content.get("phase"), self._settings.target
        ends = (
            phase == Phase.RUN and target is not None and (self._content.get("committed_step") or 0) >= target
        )
        passing = (ends or phase in _PASSING) and not self._content.get("notice")
        return self._write_interval if passing else self._rest()

    def _rest(self) -> float:
        """Return the seconds until the object may be written again, also after a write of an earlier agent."""
        if self._reported >= 0:
            return max(0.0, self._last + self._write_interval - self._clock.monotonic())
        at = (self._before or {}).get("at")
        if not isinstance(at, (int, float)) or at > self._clock.now():
            return 0.0
        # `at` is set before the upload, so the bucket's time of the write is slightly later.
        return max(0.0, at + LATER * self._write_interval - self._clock.now())

    def _read_before(self, timeout: float) -> Dict[str, Any]:
        if self._before is None:
            held = self._bucket.read(self._name, timeout)
            self._before = with_current_keys(json_value(held.data if held is not None else None) or {})
        return self._before


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


KEYS_FOLDER = "/etc/ssh"
MAX_KEY = 1000
"""Characters of the longest key accepted; an RSA key of 4096 bits has 716."""


def public_host_keys(environ: Mapping[str, str] = os.environ) -> List[str]:
    """Return the public host keys as lines such as `ssh-ed25519 AAAA...`, sorted; [] if unreadable."""
    folder = Path(environ.get("TPUCTL_SSH_DIR") or KEYS_FOLDER)
    found = []
    for path in folder.glob("ssh_host_*_key.pub"):
        try:
            words = path.read_text().split()[:2]
        except (OSError, ValueError):
            continue
        if len(words) == 2 and len(" ".join(words)) <= MAX_KEY:
            found.append(" ".join(words))
    return sorted(found)


WAKE_TIMEOUT = 5.0
"""Seconds for the wake object: the heartbeat itself must not wait for it."""


class WakeWriter:
    """
    Writes the wake object when the controller must not wait for its next poll of a heartbeat.

    All workers of an incarnation share one object, so the controller reads one for all of them.
    """

    def __init__(self, incarnation: int, worker: int, bucket: JobBucket, clock: Clock) -> None:
        self._clock = clock
        self._name = f"{WAKE}{incarnation}"
        self._worker = worker
        self._bucket = bucket
        self._written: Tuple[Any, ...] = ()

    def write_if_urgent(self, heartbeat: Mapping[str, Any], timeout: float) -> None:
        """
        Write the wake object if *heartbeat*, already in the bucket, has a new preemption notice or end of the job.

        A failure is not retried: it only costs the time until the next poll.
        """
        key = (heartbeat["attempt"], heartbeat["phase"], heartbeat["notice"])
        if key == self._written or not (heartbeat["notice"] or heartbeat["phase"] in ENDS):
            return
        self._written = key
        _attempt, phase, notice = key
        text = {"worker": self._worker, "phase": phase, "notice": notice, "at": self._clock.now()}
        try:
            # No precondition: if two workers write at once, either write wakes the controller.
            self._bucket.write(self._name, json.dumps(text).encode(), timeout=min(WAKE_TIMEOUT, timeout))
        except (AgentError, OSError) as error:
            say(f"wake: {error}")
