"""Write the job's log: rotated on disk, and copied to the bucket in numbered segments."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import FAST_HEARTBEAT, Settings
from orchestrator.contract.agent_lines import agent_line
from orchestrator.contract.bucket.object_names import LOGS
from orchestrator.contract.clock import Clock
from orchestrator.contract.secrets.redaction import RedactedStream, Redactor

SEGMENT = 256 << 10
TURN = 16 << 20
TURNS = 3
WAITING = 256
TAIL = 16 << 10
POLL_SECONDS = 1.0
"""Seconds between two polls of the output: one object takes one change a second (docs/facts.md 3.2)."""


class JobLog:
    """
    Takes the job's output into log/job.log and into segments for the bucket.

    A full disk loses lines on disk only. If the bucket is unreachable for long, the oldest waiting segments
    are dropped, and a line says how many. Secrets are masked before anything is stored.
    """

    def __init__(self, path: Path, clock: Clock, redactor: Optional[Redactor] = None) -> None:
        self._path = path
        self._clock = clock
        self._redactor = redactor or Redactor()
        self._stream = RedactedStream(self._redactor)
        self._lock = threading.Lock()
        self._full: List[bytes] = []
        self._open = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self.message = ""
        self.last_at = self._clock.monotonic()
        self.begun: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        """Append output of the job. Never raises."""
        with self._lock:
            self.last_at = self._clock.monotonic()
            self._keep(self._stream.feed(data))

    def settle(self) -> None:
        """Write what was held back as a possible beginning of a secret; call it when the job has ended."""
        with self._lock:
            self._keep(self._stream.end())

    def _keep(self, data: bytes) -> None:
        """Store output in which secrets are already masked."""
        if not data:
            return
        self._open += data
        self._tail += data[-TAIL:]
        del self._tail[:-TAIL]
        while len(self._open) >= SEGMENT:
            self._close_segment()
        try:
            self._turn()
            with self._path.open("ab") as file:
                file.write(data)
            self.message = ""
        except OSError as error:
            self.message = f"log/job.log cannot be written: {error}"

    def say(self, text: str) -> None:
        """Append what the agent itself says, as one line; it may precede output that is still held back."""
        line = agent_line(self._redactor.text(text))
        with self._lock:
            self.last_at = self._clock.monotonic()
            self._keep(f"{line}\n".encode("utf-8", "surrogateescape"))

    def tail(self) -> bytes:
        """Return the end of the output since `begin_tail`."""
        with self._lock:
            return bytes(self._tail)

    def begin_tail(self) -> None:
        """Reset the tail for another start, and call *begun*."""
        with self._lock:
            self._tail.clear()
        self.begun()

    def waiting(self) -> Tuple[List[bytes], bytes]:
        """Return the full segments that wait for the bucket, and the current one."""
        with self._lock:
            return list(self._full), bytes(self._open)

    def shipped(self) -> None:
        """Drop the oldest waiting segment after its upload."""
        with self._lock:
            del self._full[:1]

    def _close_segment(self) -> None:
        """End the current segment after its last whole line, if it has one."""
        cut = self._open.rfind(b"\n", 0, SEGMENT) + 1 or SEGMENT
        self._full.append(bytes(self._open[:cut]))
        del self._open[:cut]
        if len(self._full) > WAITING:
            # Not the first one: the shipper may be uploading it, and would then drop the wrong segment.
            del self._full[1]
            self._dropped += 1
            lost = agent_line(f"{self._dropped} segments of this log were lost: bucket out of reach")
            self._open += f"{lost}\n".encode()

    def _turn(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < TURN:
            return
        # From the oldest to the newest, so that no file is renamed over another.
        for number in range(TURNS - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))


class LogShipper:
    """
    Copies the log to `logs/g<incarnation>/w<worker>/<segment>.log`, after an earlier agent's segments.

    *pause* is the time until the next poll in seconds. Each upload is billed, so it doubles with each, from
    POLL_SECONDS to
    a heartbeat: the first lines of a start arrive within seconds, and so does a line after a silence.
    """

    def __init__(self, settings: Settings, bucket: JobBucket, log: JobLog) -> None:
        self.pause = self._step = POLL_SECONDS
        self._longest = max(
            POLL_SECONDS, settings.heartbeat_interval if settings.heartbeat_interval > FAST_HEARTBEAT else 0.0
        )
        self._prefix = f"{LOGS}g{settings.incarnation}/w{settings.worker}/"
        self._bucket = bucket
        self._log = log
        self._lock = threading.Lock()
        self._next: Optional[int] = None
        self._shown = 0
        self._silent = 0.0

    def ship_new(self) -> None:
        """Upload what is new, and set *pause*. Raise AgentError."""
        full, growing = self._log.waiting()
        if not full and len(growing) == self._shown:
            self._silent += self.pause
            self.pause = POLL_SECONDS
            if self._silent >= self._longest:
                self._step = POLL_SECONDS
            return
        self._silent = 0.0
        # Before the upload, so that a bucket out of reach is not tried each second either.
        self.pause, self._step = self._step, min(self._longest, 2 * self._step)
        self.ship()

    def hasten(self) -> None:
        """Begin again with short pauses: a start of the job writes its first lines now."""
        self.pause = self._step = POLL_SECONDS

    def ship(self, timeout: float = 30.0) -> None:
        """Upload the full segments and the current one. Raise AgentError; what was not uploaded keeps waiting."""
        with self._lock:
            if self._next is None:
                names = [
                    name.rsplit("/", 1)[-1].split(".")[0] for name in self._bucket.list(self._prefix, timeout)
                ]
                # Continue after the segments of an earlier agent of this worker; they must not be overwritten.
                self._next = max((int(name) for name in names if name.isdigit()), default=-1) + 1
            full, growing = self._log.waiting()
            for segment in full:
                self._bucket.write(self._name(self._next), segment, timeout=timeout)
                # Dropped only after the upload, so that a failure loses nothing.
                self._log.shipped()
                self._next += 1
                self._shown = 0
            if growing and (full or len(growing) != self._shown):
                self._bucket.write(self._name(self._next), growing, timeout=timeout)
                self._shown = len(growing)

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.log"
