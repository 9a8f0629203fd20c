"""Read the agent's settings from the environment made from job.env."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

from orchestrator.agent.layout import Layout
from orchestrator.contract.formats.choose import NAMES, format_of
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.preemption_notice import JOB_SAVES

DEFAULT_ROOT = "/opt/tpuctl"
FAST_HEARTBEAT = 2.0
"""Heartbeats of at most so many seconds are those of the local cloud, where all else is as fast."""
_SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "USR1": signal.SIGUSR1}


@dataclass(frozen=True)
class CheckpointSettings:
    """
    Where the job saves and how a finished save looks.

    *format* is a name of `formats.choose`, *folder* a local path or `gs://BUCKET/...`, *keep* at least 2.
    *every* is the save interval: "" (the job decides), seconds, or `auto`; *save_pause* is the declared
    one, in seconds.
    """

    format: str
    folder: str
    keep: int
    marker: str
    every: str = ""
    save_pause: Optional[float] = None

    @property
    def in_bucket(self) -> bool:
        """Return whether the job itself writes to the bucket, so that the agent only reads."""
        return self.folder.startswith("gs://")

    def prefix(self, own: str) -> str:
        """Return the folder of the job's saves in the bucket, relative to the deployment's *own* folder."""
        path = self.folder[len("gs://") :].partition("/")[2][len(own) :]
        return path.rstrip("/") + "/" if path else ""


@dataclass(frozen=True)
class Settings:
    """
    The settings of one agent. Times are in seconds.

    *target* is None if none is declared. *round* is the number of this TPU's race, 0 for none. *progress* says
    how the job's output shows its step: see `printed.choice`. *settings_digest* identifies the job's settings
    in the deployment file, "" if unknown. *caches* is `job.caches` as JSON, *image* is `job.image`. *zone*
    and *tpu_type* are this TPU's keys in the zone statistics.
    *bucket_timeout* is how long the job may go on without the bucket, None if no other machine takes it over.
    """

    layout: Layout
    deployment: str
    bucket: str
    incarnation: int
    worker: int
    workers: int
    bundle: str
    command: str
    setup: str
    checkpoints: CheckpointSettings
    target: Optional[int]
    failures: int
    stop_signal: signal.Signals
    grace: float
    stall: float
    heartbeat_interval: float
    round: int = 0
    progress: str = "auto"
    settings_digest: str = ""
    warm_start: bool = False
    caches: str = ""
    image: str = ""
    zone: str = ""
    tpu_type: str = ""
    bucket_timeout: Optional[float] = None

    @property
    def poll(self) -> float:
        """Return the seconds between two reads of other workers' objects."""
        return min(1.0, self.heartbeat_interval) if self.heartbeat_interval <= FAST_HEARTBEAT else 5.0

    @property
    def longest_pause(self) -> float:
        """Return the longest pause in seconds before a failed job is restarted."""
        return 5.0 if self.heartbeat_interval <= FAST_HEARTBEAT else 60.0


def layout_of(environ: Mapping[str, str]) -> Layout:
    """Return the machine folder named in the environment."""
    return Layout(Path(environ.get("TPUCTL_ROOT") or DEFAULT_ROOT).absolute())


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings. Raise AgentError that names all missing and wrong keys at once."""
    reader = _Reader(environ)
    layout = layout_of(environ)
    checkpoints = _checkpoints(reader, layout)
    settings = Settings(
        layout=layout,
        deployment=reader.text("TPUCTL_DEPLOYMENT"),
        bucket=reader.text("TPUCTL_BUCKET"),
        incarnation=int(reader.number("TPUCTL_INCARNATION")),
        worker=int(reader.number("TPUCTL_WORKER_ID", environ.get("WORKER_ID") or "0")),
        workers=int(reader.number("TPUCTL_WORKERS", "1")),
        bundle=reader.text("TPUCTL_BUNDLE"),
        command=reader.text("TPUCTL_COMMAND"),
        setup=environ.get("TPUCTL_SETUP", ""),
        checkpoints=checkpoints,
        target=int(reader.number("TPUCTL_TARGET_STEPS")) if environ.get("TPUCTL_TARGET_STEPS") else None,
        failures=int(reader.number("TPUCTL_FAILURES", "5")),
        stop_signal=_SIGNALS[reader.choice("TPUCTL_STOP_SIGNAL", tuple(_SIGNALS))],
        grace=reader.number("TPUCTL_GRACE_SECONDS", str(_default_grace(checkpoints))),
        stall=reader.number("TPUCTL_STALL_SECONDS", "3600"),
        heartbeat_interval=max(0.1, reader.number("TPUCTL_HEARTBEAT_SECONDS", "30")),
        round=int(reader.number("TPUCTL_ROUND", "0")),
        progress=environ.get("TPUCTL_PROGRESS") or "auto",
        settings_digest=environ.get("TPUCTL_JOB_DIGEST", ""),
        warm_start=environ.get("TPUCTL_WARM_START") == "1",
        caches=environ.get("TPUCTL_CACHES", ""),
        image=environ.get("TPUCTL_IMAGE", ""),
        zone=environ.get("ZONE", ""),
        tpu_type=environ.get("TPUCTL_TPU_TYPE", ""),
        bucket_timeout=(
            reader.number("TPUCTL_BUCKET_TIMEOUT_SECONDS")
            if environ.get("TPUCTL_BUCKET_TIMEOUT_SECONDS")
            else None
        ),
    )
    reader.finish()
    return settings


def _checkpoints(reader: _Reader, layout: Layout) -> CheckpointSettings:
    environ = reader.environ
    every = environ.get("TPUCTL_SAVE_INTERVAL", "")
    if every not in ("", "auto"):
        reader.number("TPUCTL_SAVE_INTERVAL")  # only for its error message; the setting keeps the text
    return CheckpointSettings(
        format=reader.choice("TPUCTL_CHECKPOINT_FORMAT", NAMES),
        folder=environ.get("TPUCTL_CHECKPOINT_DIR") or str(layout.checkpoints),
        keep=max(2, int(reader.number("TPUCTL_CHECKPOINT_KEEP", "3"))),
        marker=environ.get("TPUCTL_CHECKPOINT_MARKER") or "COMPLETE",
        every=every,
        save_pause=reader.number("TPUCTL_SAVE_PAUSE") if environ.get("TPUCTL_SAVE_PAUSE") else None,
    )


def _default_grace(checkpoints: CheckpointSettings) -> float:
    """Return the seconds that a graceful stop takes with this format."""
    if checkpoints.format not in NAMES:
        return JOB_SAVES
    return format_of(checkpoints.format, checkpoints.marker).grace


class _Reader:
    """Reads keys and collects all errors."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._errors: list[str] = []

    def text(self, key: str) -> str:
        value = self.environ.get(key, "")
        if not value:
            self._errors.append(f"{key} is missing")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.environ.get(key) or allowed[0]
        if value not in allowed:
            self._errors.append(f"{key} is {value!r}, expected one of {', '.join(allowed)}")
            return allowed[0]
        return value

    def number(self, key: str, default: str = "") -> float:
        value = self.environ.get(key) or default
        try:
            return float(value)
        except ValueError:
            self._errors.append(f"{key} is {value!r}, expected a number" if value else f"{key} is missing")
            return 0.0

    def finish(self) -> None:
        if self._errors:
            raise AgentError("job.env is wrong, nothing was started: " + "; ".join(self._errors))
