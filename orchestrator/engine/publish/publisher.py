"""
Publish a deployment's status and loss curve, so that readers need not ask the cloud.

A published status is current while the process that wrote it holds the lease and lives. Nothing is changed on the
ground of a published status.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.contract.bucket.limits import LATEST_TIME, MAX_FLOAT, MAX_INT
from orchestrator.contract.bucket.object_names import CURVE, STATUS
from orchestrator.domain.checksum import bytes_with_checksum, proven, verified
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.lease import EXPIRES_AFTER, Holder
from orchestrator.domain.ports import Store
from orchestrator.domain.status import DeploymentStatus
from orchestrator.engine.lease.lease_release import current
from orchestrator.engine.publish.published_status import (
    AHEAD,
    HERE,
    REWRITE,
    SCHEMA,
    PublishedStatus,
    counted,
)
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import UNFORESEEN, DiskError, TpuctlError

WRITE_INTERVAL = 5.0
"""Shortest time between two writes to the bucket, in seconds."""
CURVE_HERE = "curve.json"
"""Copy of the curve in the deployment's folder, for the points that a killed watcher had not stored yet."""
POINTS = 600
"""Most points of a curve; beyond that every second point is dropped."""
Point = tuple[float, int, float | None, int]
"""Seconds since the epoch, step, loss and incarnation."""


@dataclass
class Publisher:
    """Write the status of one deployment to the bucket and to *folder*. Failures are ignored."""

    store: Store
    folder: Path
    holder: str
    key: bytes = b""
    curve: list[Point] = field(default_factory=list)
    _said: str = ""
    _at: float = 0.0
    _curve_at: float = 0.0
    _drawn: int = 0

    def publish(self, status: DeploymentStatus, news: object, now: float, *, usable: bool) -> None:
        """Publish *status* as observed at *now*: locally always, in a *usable* bucket when *news* has changed."""
        envelope = {"schema": SCHEMA, "holder": self.holder, "at": now, "status": status.as_dict()}
        data = bytes_with_checksum(proven(envelope, self.key) if self.key else envelope)
        with suppress(DiskError):
            write_private(self.folder / HERE, data)
        words = repr(news)
        # One object takes one write a second; a published status counts for FRESH seconds.
        wait = WRITE_INTERVAL if words != self._said else REWRITE
        if not usable or now - self._at < wait:
            return
        with suppress(TpuctlError):
            self.store.write(STATUS, data)
            self._said, self._at = words, now

    def draw(self, heartbeat: Heartbeat, *, usable: bool) -> None:
        """Add the step of a heartbeat to the curve if it has changed; the bucket has it within a minute."""
        now, of_step = heartbeat.updated, heartbeat.loss if heartbeat.loss_step is None else None
        last = self.curve[-1][1] if self.curve and self.curve[-1][3] == heartbeat.incarnation else None
        if heartbeat.step is not None and heartbeat.step != last:
            # A loss belongs to the step that it was printed for, which no heartbeat may have shown.
            at = heartbeat.loss_step
            if at is not None and (-1 if last is None else last) < at < heartbeat.step:
                self.curve.append((round(now, 1), at, heartbeat.loss, heartbeat.incarnation))
            self.curve.append((round(now, 1), heartbeat.step, of_step, heartbeat.incarnation))
            if len(self.curve) > POINTS:
                del self.curve[1:-1:2]
            with suppress(DiskError):
                write_private(self.folder / CURVE_HERE, self._curve_bytes())
        if usable and now - self._curve_at >= REWRITE:
            self.save_curve(now)

    def save_curve(self, now: float) -> None:
        """Write the curve to the bucket if it has changed."""
        if self.curve and self._drawn != hash(self.curve[-1]):
            with suppress(TpuctlError):
                self.store.write(CURVE, self._curve_bytes())
                self._curve_at, self._drawn = now, hash(self.curve[-1])

    def _curve_bytes(self) -> bytes:
        return bytes_with_checksum({"schema": SCHEMA, "points": self.curve})

    def withdraw(self) -> None:
        """Delete the local copy, because the loop ends."""
        with suppress(OSError):
            (self.folder / HERE).unlink(missing_ok=True)


def read_curve(store: Store, folder: Path | None = None, started_at: float = 0.0) -> list[Point]:
    """
    Return the curve of the bucket, or its longer copy in *folder*; an empty list if neither can be read.

    *started_at* is when the deployment was brought up.
    """
    there, here = _points(lambda: _in_bucket(store)), []
    if folder is not None:
        here = _points((folder / CURVE_HERE).read_bytes)
    # A copy of this curve begins as it does. An older one stays here when another computer deletes the data.
    ours = bool(here) and (here[0] == there[0] if there else here[0][0] >= started_at)
    return here if ours and (not there or here[-1][0] > there[-1][0]) else there


def _in_bucket(store: Store) -> bytes:
    found = store.read(CURVE)
    return found.data if found else b""


def _points(read: Callable[[], bytes]) -> list[Point]:
    try:
        data = read()
        return [_point(*point) for point in verified(data)["points"][:POINTS]] if data else []
    except (TpuctlError, OSError, *UNFORESEEN):
        return []


def _point(at: float, step: int, loss: float | None, incarnation: int) -> Point:
    """Return a point of the curve; raise ValueError if a value is out of range."""
    ok = 0 <= float(at) <= LATEST_TIME and 0 <= int(step) <= MAX_INT and 0 <= int(incarnation) <= MAX_INT
    if not ok or (loss is not None and not abs(float(loss)) <= MAX_FLOAT):
        raise ValueError("no point of a curve")
    return float(at), int(step), None if loss is None else float(loss), int(incarnation)


def published_in_bucket(
    store: Store, now: float, process_ended: Callable[[Holder], bool], key: bytes
) -> PublishedStatus | None:
    """Return the bucket's published status if a live holder of the lease wrote it under *key*; else None."""
    lease = current(store)
    # The lease first: the status of a loop that has ended must not pass for the present.
    if lease is None or not -AHEAD <= now - lease.updated < EXPIRES_AFTER:
        return None
    holder = Holder.from_json(lease.data)
    found = None if process_ended(holder) else store.read(STATUS)
    return None if found is None else counted(found.data, holder, now, found.updated, key)
