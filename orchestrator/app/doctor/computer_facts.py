"""What `tpuctl doctor` finds on this computer: programs, libraries, the terminal, the state folder."""

import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from orchestrator import __version__
from orchestrator.advice.doctor.facts import Computer, Kept
from orchestrator.app.state_folders import KEPT, state_path

LIBRARIES = ("google-cloud-tpu", "google-cloud-compute", "google-cloud-storage", "fabric", "paramiko")
PROGRAMS: Mapping[str, tuple[str, ...]] = {"ssh": ("-V",), "git": ("--version",)}
COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR")
DIVERTING = (
    "STORAGE_EMULATOR_HOST",
    "API_ENDPOINT_OVERRIDE",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU",
)
PROGRAM_SECONDS = 10.0


def look_at_computer(cloud: str) -> Computer:
    """Return what this computer shows."""
    folder = state_path(cloud)
    programs = {name: _version(name, words) for name, words in PROGRAMS.items()}
    keys = sorted(folder.glob("*/*/id_ed25519"))
    return Computer(
        python=platform.python_version(),
        tpuctl=__version__,
        libraries={name: _installed(name) for name in LIBRARIES},
        programs={**programs, "gcloud": _gcloud()},
        encoding=getattr(sys.stdout, "encoding", "") or "",
        term=os.environ.get("TERM", ""),
        colours={name: os.environ[name] for name in COLOURS if name in os.environ},
        diverting=tuple(name for name in DIVERTING if os.environ.get(name)),
        state=str(folder),
        state_mode=_mode(folder),
        state_problem=_problem(folder),
        free_bytes=_free(folder),
        keys=len(keys),
        open_keys=tuple(str(path) for path in keys if (_mode(path) or 0) & 0o077),
        kept=_kept(folder, time.time()),
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _version(name: str, words: tuple[str, ...]) -> str | None:
    """Return the first line of a program's answer to the question for its version, None when it is not there."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        said = subprocess.run(
            [path, *words], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return f"{path} (does not say its version)"
    lines = (said.stdout + said.stderr).splitlines()
    return lines[0].strip() if lines else path


def _gcloud() -> str | None:
    """Return gcloud's version from its own file: the program itself takes a second to say it."""
    path = shutil.which("gcloud")
    if path is None:
        return None
    try:
        return f"gcloud {(Path(path).resolve().parent.parent / 'VERSION').read_text().strip()}"
    except OSError:
        return path


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _problem(folder: Path) -> str:
    """Say why *folder*, or the nearest one above it that is there, cannot be written; empty when it can."""
    there = _nearest(folder)
    if not there.is_dir():
        return f"{there} is no folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(_nearest(folder)).free
    except OSError:
        return None


def _nearest(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _kept(folder: Path, now: float) -> tuple[Kept, ...]:
    """Return the deployments that this computer remembers."""
    return tuple(_one(path, now) for path in sorted(folder.glob(f"*/*/{KEPT}")))


def _one(path: Path, now: float) -> Kept:
    from orchestrator.config.adapter import restore
    from orchestrator.domain.checksum import unsealed
    from orchestrator.engine.record_format import decode
    from orchestrator.errors import TpuctlError

    name, file = path.parent.name, path.parent / "record.json"
    try:
        spec = restore(unsealed(path.read_bytes()))
        if not file.exists():
            return Kept(name)
        record = decode(file.read_bytes(), spec.name)
    except (OSError, ValueError, TypeError, TpuctlError):
        return Kept(name, readable=False)
    billed = record.node.accepted or any(span.until is None for span in record.spans)
    over = bool(record.started_at) and now - record.started_at >= spec.watch.ttl
    return Kept(name, overdue=billed and over)
