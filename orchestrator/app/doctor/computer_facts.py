"""Collect facts about this computer, including its local cloud, without starting anything."""

import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from orchestrator import __version__
from orchestrator.advice.doctor.facts import Computer, KnownDeployment, Local
from orchestrator.app.this_computer.state_folders import SPEC_FILE, state_path
from orchestrator.config.adapter import restore
from orchestrator.domain.checksum import verified
from orchestrator.emulator.address import address_on_machine, local_folder, read_address
from orchestrator.emulator.machines.namespace import available
from orchestrator.emulator.packages import missing_packages
from orchestrator.emulator.start_options import PORTS, load_options
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import TpuctlError

LIBRARIES = ("google-cloud-tpu", "google-cloud-compute", "google-cloud-storage", "fabric", "paramiko")
PROGRAMS: Mapping[str, tuple[str, ...]] = {"ssh": ("-V",), "git": ("--version",)}
COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR")
# Each of these silently redirects Google's clients, so that other rules would not be about Google.
DIVERTING = (
    "STORAGE_EMULATOR_HOST",
    "API_ENDPOINT_OVERRIDE",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU",
)
PROGRAM_TIMEOUT = 10.0
"""Seconds for a program to say its version; one that hangs is reported as such."""


def observe_computer(cloud: str) -> Computer:
    """Return the facts about this computer; only version queries of programs are started."""
    folder = state_path(cloud)
    programs = {name: _version(name, words) for name, words in PROGRAMS.items()}
    keys = sorted(folder.glob("*/*/id_ed25519"))
    return Computer(
        python=platform.python_version(),
        tpuctl=__version__,
        libraries={name: _installed(name) for name in LIBRARIES},
        programs={**programs, "gcloud": _gcloud()},
        # The process's own: a live line on the terminal has replaced sys.stdout by a stream without an encoding.
        encoding=getattr(sys.__stdout__, "encoding", "") or "",
        term=os.environ.get("TERM", ""),
        colours={name: os.environ[name] for name in COLOURS if name in os.environ},
        diverting=tuple(name for name in DIVERTING if os.environ.get(name)),
        state=str(folder),
        state_mode=_mode(folder),
        state_message=_not_writable(folder),
        free_bytes=_free(folder),
        keys=len(keys),
        open_keys=tuple(str(path) for path in keys if (_mode(path) or 0) & 0o077),
        deployments=_known(folder, time.time()),
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _version(name: str, words: tuple[str, ...]) -> str | None:
    """Return the first line of a program's version output, None if it is not installed."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        said = subprocess.run(
            # No input: a wrapper that asks a question would wait for an answer unseen.
            [path, *words], capture_output=True, text=True, timeout=PROGRAM_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return f"{path} (does not say its version)"
    lines = (said.stdout + said.stderr).splitlines()
    return lines[0].strip() if lines else path


def _gcloud() -> str | None:
    """Return gcloud's version from its own file, since the program takes a second to print it."""
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


def _not_writable(folder: Path) -> str:
    """Return why *folder*, or its nearest existing parent, is not writable; "" if it is."""
    there = _nearest(folder)
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(_nearest(folder)).free
    except OSError:
        return None


def _nearest(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _known(folder: Path, now: float) -> tuple[KnownDeployment, ...]:
    return tuple(_one(path, now) for path in sorted(folder.glob(f"*/*/{SPEC_FILE}")))


def _one(path: Path, now: float) -> KnownDeployment:
    name, file = path.parent.name, path.parent / "record.json"
    try:
        spec = restore(verified(path.read_bytes()))
        if not file.exists():
            return KnownDeployment(name)
        record = decode(file.read_bytes(), spec.name)
    # One damaged or newer file must not hide the other deployments.
    except (OSError, ValueError, TypeError, TpuctlError):
        return KnownDeployment(name, readable=False)
    # A requested TPU counts even if the record does not know yet that it was created.
    billed = record.node.accepted or any(span.until is None for span in record.spans)
    over = bool(record.started_at) and now - record.started_at >= spec.watch.ttl
    return KnownDeployment(name, overdue=billed and over)


LOCAL_PROGRAMS = ("bash", "flock", "setsid")
TIMEOUT = 3.0
"""Seconds for the local cloud on this computer to answer."""


def observe_local(cloud: str) -> Local:
    """Return the facts about this computer's local cloud, and whether it runs."""
    folder = local_folder()
    missing = missing_packages()
    address = address_on_machine() or read_address(folder)
    daemon = "absent"
    if address is not None:
        daemon = "runs" if _answers(address.endpoint) else "deaf"
    elif (folder / "daemon.json").exists():
        daemon = "stale"
    return Local(
        chosen=cloud == "local",
        missing=missing,
        programs=_programs(),
        namespace=_namespace(missing),
        daemon=daemon,
        endpoint=address.endpoint if address else "",
        folder=str(folder),
        taken=() if address else _taken(folder),
    )


def _programs() -> tuple[str, ...]:
    absent = tuple(name for name in LOCAL_PROGRAMS if shutil.which(name) is None)
    return absent if sys.platform == "linux" else ("Linux", *absent)


def _namespace(missing: tuple[str, ...]) -> str | None:
    if missing:
        return "packages are missing"
    return available()


def _answers(endpoint: str) -> bool:
    """Return whether a daemon answers by HTTP, with any status."""
    # No proxy, which would answer for the loopback address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{endpoint}/storage/v1/b", timeout=TIMEOUT).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _taken(folder: Path) -> tuple[int, ...]:
    """Return the ports of the stopped local cloud that another program now uses."""
    if not (folder / "options.json").exists():
        return ()
    options = load_options(folder)
    return tuple(port for name in PORTS if _held(port := int(getattr(options, name))))


def _held(port: int) -> bool:
    with socket.socket() as tried:
        # As the daemon binds: a port in TIME_WAIT is free for it.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
