"""Keep the create budget in a file that all deployments of a project on this computer share."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from orchestrator.domain.machines.capacity import CapacityHistory, ZoneHistory
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import DiskError
from orchestrator.planning.tpu.create_budget import (
    A_MINUTE,
    MAX_A_MINUTE,
    SHARED,
    CreateBudgetContent,
    free_at,
    with_create,
    with_stockout,
)
from orchestrator.private_folders import private_folder

LOCK_TIMEOUT = 10.0
"""Seconds to wait for the file's lock. After that the create is made: a lock must not stop a deployment."""


def limit_of(environ: Mapping[str, str]) -> int:
    """Return the allowed creates per minute: TPUCTL_CREATES_A_MINUTE, or the default."""
    text = environ.get("TPUCTL_CREATES_A_MINUTE", "")
    # An invalid value must not switch the limit off.
    return int(text) if text.isdigit() else A_MINUTE


class CreateBudgetFile:
    """Share the create budget in the file *path* with other processes; an unreadable file counts as empty."""

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path = path
        self._limit = min(MAX_A_MINUTE, max(1, limit_of(os.environ) if limit is None else limit))

    def pauses(self, zones: Sequence[str], now: float) -> Mapping[str, float]:
        """Return until when zones pause, in seconds since the epoch; zones that are free are left out."""
        content = self._read()
        times = {zone: free_at(content, zone, now, self._limit) for zone in zones}
        return {zone: at for zone, at in times.items() if at > now}

    def take(self, zone: str, now: float) -> float:
        """Take one create in *zone* and return 0, or return until when the zone pauses and take none."""
        with self._locked():
            content = self._read()
            until = free_at(content, zone, now, self._limit)
            # Checked again under the lock: another process may have used the create budget since the plan was made.
            if until > now:
                return until
            self._write(with_create(content, zone, now))
        return 0.0

    def refused(self, zone: str, tpu_type: str, at: float) -> None:
        """Record for all deployments that *zone* had no capacity for *tpu_type* at time *at*."""
        with self._locked():
            self._write(with_stockout(self._read(), zone, tpu_type, at))

    def stockouts(self, tpu_type: str, now: float) -> CapacityHistory:
        """Return the stockouts of *tpu_type* that any deployment on this computer has recorded."""
        # Times in the future are ignored: another computer's clock may have written them.
        return tuple(
            p for p in self._read().stockouts if p.type == tpu_type and now - SHARED < p.out_at <= now
        )

    def _locked(self) -> "_Locked":
        return _Locked(self._path.with_suffix(".lock"))

    def _read(self) -> CreateBudgetContent:
        try:
            body = json.loads(self._path.read_bytes())
            creates = tuple((float(at), str(zone)) for at, zone in body["creates"])
            stockouts = tuple(
                ZoneHistory(str(zone), str(tpu_type), float(since), float(at))
                for zone, tpu_type, since, at in body["stockouts"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return CreateBudgetContent()
        return CreateBudgetContent(creates, stockouts)

    def _write(self, content: CreateBudgetContent) -> None:
        rows = [[p.zone, p.type, p.out_since, p.out_at] for p in content.stockouts]
        body = {"schema": 1, "creates": [list(create) for create in content.creates], "stockouts": rows}
        with suppress(DiskError):  # a lost create budget costs refused calls, no money
            write_private(self._path, json.dumps(body).encode())


class _Locked:
    """The file's lock for a block, or continue without it after LOCK_TIMEOUT."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._lock = FileLock(path)

    def __enter__(self) -> None:
        # The lock's Timeout is an OSError too.
        with suppress(OSError):
            private_folder(self._folder)
            self._lock.acquire(timeout=LOCK_TIMEOUT)

    def __exit__(self, *_: object) -> None:
        if self._lock.is_locked:
            self._lock.release()
