"""What this worker reports: a shared value, written to the bucket and to state/status.json."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from orchestrator.agent.cloud.storage import SECONDS, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.threads import say
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.object_names import HEARTBEAT, WAKE
from orchestrator.contract.replacing import write_atomically

SCHEMA = 1
_UNKNOWN = (
    "step", "began_at", "loss", "rate", "total_steps", "committed_step", "committed_at", "resumed_from",
    "exit_code", "progress_at", "save_every", "save_cost", "save_life", "save_apart", "save_stalled",
    "commit_seconds", "unclaimed_complete",
    "programs_back", "programs_compiled",
)  # fmt: skip
_UNCOMMITTED = ("uncommitted", "uncommitted_place", "uncommitted_state")
_URGENT = ("phase", "committed_step", "notice", "preempted")
_PASSING = ("boot", "restore")
LATER = 1.25
_INHERITED = ("attempt", "starts")


def heartbeat_name(incarnation: int, worker: int) -> str:
    """Return the object name of one worker's heartbeat."""
    return f"{HEARTBEAT}{incarnation}/{worker}"


class Status:
    """
    Hold the report; threads change it, *urgent* is called after a change that must be seen soon.

    *masked* takes secrets out of a text. *changes* counts them.
    """

    def __init__(self, settings: Settings) -> None:
        self._lock = threading.Lock()
        self.changes = 0
        self._troubles: Dict[str, str] = {}
        self._timings: Dict[str, float] = {}
        self._fields: Dict[str, Any] = {
            **dict.fromkeys(_UNKNOWN),
            **dict.fromkeys(("attempt", "starts", "failures", "unclaimed_files", "unclaimed_bytes"), 0),
            **dict.fromkeys(("notice", "preempted", "committed_counted"), False),
            **dict.fromkeys(("progress_from", "save_cost_from", "message", "image", *_UNCOMMITTED), ""),
            "schema": SCHEMA,
            "deployment": settings.deployment,
            "incarnation": settings.incarnation,
            "worker": settings.worker,
            "workers": settings.workers,
            "bundle": settings.bundle,
            "phase": "boot",
            "host_keys": public_host_keys(),
            "format": "" if settings.checkpoints.format == "auto" else settings.checkpoints.format,
        }
        self.urgent: Callable[[], None] = lambda: None
        self.masked: Callable[[str], str] = str

    def set(self, **changes: Any) -> None:
        """Change fields of the report; a message is also logged."""
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

    def inherit(self, before: Mapping[str, Any]) -> None:
        """Go on with the numbers of an earlier agent's report, as long as this agent has played nothing."""
        with self._lock:
            for key in _INHERITED:
                self._fields[key] = self._fields[key] or before.get(key) or 0

    def get(self, name: str) -> Any:
        """Return one field."""
        with self._lock:
            return self._fields[name]

    def time(self, name: str, again: bool = True) -> None:
        """Note when something happened, for `timings`; with *again* false only the first time."""
        with self._lock:
            if again or name not in self._timings:
                self._timings[name] = time.time()

    def trouble(self, source: str, text: str) -> None:
        """Note what *source* cannot do at present; an empty text clears it."""
        with self._lock:
            before = self._troubles.get(source, "")
            self._troubles[source] = text
        if text and text != before:
            say(f"{source}: {text}")
        elif before and not text:
            say(f"{source}: works again")

    def body(self) -> Dict[str, Any]:
        """Return the report as it is written."""
        with self._lock:
            troubles = [f"{source}: {text}" for source, text in sorted(self._troubles.items()) if text]
            message = "; ".join(part for part in [self._fields["message"], *troubles] if part)
            message = self.masked(message)[:2000]
            return dict(self._fields, message=message, timings=dict(self._timings), at=time.time())


class HeartbeatWriter:
    """Write the report, at most once a second: the bucket takes about that many writes to one object."""

    def __init__(self, settings: Settings, bucket: JobBucket, status: Status) -> None:
        self._settings = settings
        self._bucket = bucket
        self._status = status
        self._lock = threading.Lock()
        self._name = heartbeat_name(settings.incarnation, settings.worker)
        self._spacing = min(1.0, settings.heartbeat)
        self._last = float("-inf")
        self._reported_at = float("-inf")
        self._reported = -1
        self._before: Optional[Dict[str, Any]] = None
        self._bell = Bell(settings.incarnation, settings.worker, bucket)

    def before(self) -> Dict[str, Any]:
        """Return what an earlier agent of this worker reported last, empty for nothing. Raises AgentError."""
        with self._lock:
            return self._read_before(SECONDS)

    def report(self, seconds: Optional[float] = None, at_once: bool = False) -> None:
        """
        Write status.json and the heartbeat object; *at_once* is for a caller that the job waits for.

        What another thread has reported meanwhile is not reported twice. Raises OSError or AgentError when either
        cannot be written.
        """
        asked, wanted = time.monotonic(), self._status.changes
        if not at_once:
            time.sleep(self._gathers())  # One write a second is taken: what changes meanwhile goes along.
        with self._lock:
            if self._reported >= wanted if at_once else self._reported_at >= asked:
                return
            bound = seconds if seconds is not None else max(5.0, self._settings.heartbeat)
            began = time.monotonic()
            try:
                write_atomically(self._settings.layout.status, _text(self._status.body()) + "\n")
            finally:
                # The first write replaces the report from which a machine that lost its disk learns its past.
                self._status.inherit(self._read_before(bound))
                time.sleep(self._rest())  # Asked too soon, the bucket refuses, and a repetition takes longer.
                changes, body = self._status.changes, self._status.body()
                self._bucket.write(self._name, _text(body).encode(), seconds=bound)
                self._last, self._reported_at, self._reported = time.monotonic(), began, changes
        # Only now would a look find what the bell is rung for.
        self._bell.ring(body, bound)

    def _gathers(self) -> float:
        """
        Return the seconds to wait for more news: after a passing phase the next one mostly follows at once.

        That one alone is reported then, and the job need not wait until the object may be changed again.
        """
        passing = self._status.get("phase") in _PASSING and not self._status.get("notice")
        return self._spacing if passing else self._rest()

    def _rest(self) -> float:
        """Return the seconds until the object may be changed again, after us or who reported here before us."""
        if self._reported >= 0:
            return max(0.0, self._last + self._spacing - time.monotonic())
        at = (self._before or {}).get("at")
        if not isinstance(at, (int, float)) or at > time.time():
            return 0.0
        # A report is written a little later than it is dated.
        return max(0.0, at + LATER * self._spacing - time.time())

    def _read_before(self, seconds: float) -> Dict[str, Any]:
        if self._before is None:
            held = self._bucket.read(self._name, seconds)
            self._before = json_value(held.data if held is not None else None) or {}
        return self._before


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


KEYS_FOLDER = "/etc/ssh"
LONGEST_KEY = 1000
"""Most characters of one key: an RSA key of 4096 bits has 716."""


def public_host_keys(environ: Mapping[str, str] = os.environ) -> List[str]:
    """Return lines such as `ssh-ed25519 AAAA...`, sorted; none where they cannot be read."""
    folder = Path(environ.get("TPUCTL_SSH_DIR") or KEYS_FOLDER)
    found = []
    for path in folder.glob("ssh_host_*_key.pub"):
        try:
            words = path.read_text().split()[:2]
        except (OSError, ValueError):
            continue
        if len(words) == 2 and len(" ".join(words)) <= LONGEST_KEY:
            found.append(" ".join(words))
    return sorted(found)


LONGEST_RING = 5.0
_ENDS = ("done", "unclaimed", "failed")


class Bell:
    """
    Write the wake object of this incarnation whenever a report holds something that cannot wait.

    All workers share one object, so that the controller reads one and not as many as there are machines.
    """

    def __init__(self, incarnation: int, worker: int, bucket: JobBucket) -> None:
        self._name = f"{WAKE}{incarnation}"
        self._worker = worker
        self._bucket = bucket
        self._rung: Tuple[Any, ...] = ()

    def ring(self, report: Mapping[str, Any], seconds: float) -> None:
        """
        Ring if *report*, which the bucket has just taken, is news of a notice or of the job's end.

        A ring that fails costs no more than the time to the next poll, so it is not tried again.
        """
        news = (report["attempt"], report["phase"], report["notice"])
        if news == self._rung or not (report["notice"] or report["phase"] in _ENDS):
            return
        self._rung = news
        _attempt, phase, notice = news
        text = {"worker": self._worker, "phase": phase, "notice": notice, "at": time.time()}
        try:
            # No precondition: of two workers that write at once either one wakes the controller.
            self._bucket.write(self._name, json.dumps(text).encode(), seconds=min(LONGEST_RING, seconds))
        except (AgentError, OSError) as error:
            say(f"wake: {error}")
