"""
Provide the program uv for machines: from the installed package, else once from the package index.

It is cached in the user's cache folder under its sha256.
"""

import gzip
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import platformdirs

from orchestrator.contract.replacing import replacing
from orchestrator.contract.uv_pin import PROGRAMS, VERSION, object_name
from orchestrator.errors import TpuctlError, TransientError
from orchestrator.private_folders import own_folder, private_folder

WHEELS = {"x86_64": "manylinux2014_x86_64", "aarch64": "manylinux2014_aarch64"}
"""pip's platform tag for each kind of processor."""
PIP_TIMEOUT = 300


def cache_folder() -> Path:
    """
    Return the cache folder of uv and of its downloads for local machines.

    Raise UsageError if other users may write to it, since its files are executed.
    """
    return own_folder(platformdirs.user_cache_path("tpuctl") / "machines", "set XDG_CACHE_HOME")


def shared_folder() -> Path:
    """
    Return the cache folder; create it, readable only by those who may write to it.

    A user who may read a file may also lock it, and uv waits for its locks, which would block every setup.
    """
    folder = cache_folder()
    private_folder(folder)
    mode = cache_folder().stat().st_mode & 0o777  # read again: it may be another user's by now
    closed = mode & (0o770 if mode & 0o020 else 0o700)
    if closed != mode:
        with suppress(PermissionError):  # a folder of root keeps its mode
            folder.chmod(closed)
    return folder


def installed() -> Path | None:
    """Return the program of the installed package uv, of any version; None if there is none."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution("uv").files or ():
            if file.name == "uv" and "bin" in file.parts:
                found = Path(str(file.locate())).resolve()
                return found if found.is_file() else None
    return None


def program(machine: str = "") -> Path:
    """
    Return the pinned uv for processor type *machine*, by default this computer's.

    Raise TransientError if it is neither installed nor cached and the package index does not provide it.
    """
    machine = machine or platform.machine()
    digest = PROGRAMS.get(machine, "")
    cached = cache_folder() / f"uv-{digest}"
    # Named by its sha256, so that a new release never overwrites a program that machines are running.
    if digest and not cached.exists():
        own = installed() if machine == platform.machine() else None
        _store(own if own and _sha256(own) == digest else None, machine, digest, cached)
    if not digest:
        raise TransientError(
            f"uv {VERSION} is not pinned for {machine} processors",
            hint="machines will lack tpuctl-venv",
            changed="nothing was downloaded",
        )
    return cached


def any_program() -> Path | None:
    """Return the pinned program, else the installed one, else None; `tpuctl-venv` then reports what is missing."""
    try:
        return program()
    except TpuctlError:
        return installed()


def packed(machine: str, folder: Path) -> Path:
    """
    Return the gzipped program for the bucket (named as in `object_name`); create it in *folder* if missing.

    Raise TransientError as `program` does.
    """
    target = folder / Path(object_name(PROGRAMS[machine])).name
    if target.exists():
        return target
    cached = cache_folder() / target.name
    if not cached.exists():
        private_folder(cached.parent)
        with program(machine).open("rb") as source, replacing(cached, 0o600) as target_file:
            with gzip.GzipFile("", "wb", 6, target_file) as file:
                shutil.copyfileobj(source, file)
    private_folder(target.parent)
    with cached.open("rb") as source, replacing(target, 0o600) as copy:
        shutil.copyfileobj(source, copy)
    return target


def _store(own: Path | None, machine: str, digest: str, cached: Path) -> None:
    private_folder(cached.parent)
    if own is not None:
        data = own.read_bytes()
    else:
        with tempfile.TemporaryDirectory() as folder:
            data = _downloaded(machine, Path(folder))
        if hashlib.sha256(data).hexdigest() != digest:
            raise TransientError(
                f"the package index gives another uv {VERSION} for {machine} than the pinned one",
                hint="ask the operator of the index; nothing of it was used",
                changed="nothing was stored",
            )
    with replacing(cached, 0o700) as file:
        file.write(data)
    # Local machines may run as another user.
    cached.chmod(0o755)


def _downloaded(machine: str, folder: Path) -> bytes:
    """
    Return the program from the wheel that pip downloads from this computer's package index.

    Raise TransientError.
    """
    words = ["download", "--no-deps", "--only-binary=:all:", "--quiet", "--retries=1"]
    words += ["--platform", WHEELS[machine], "--dest", str(folder), f"uv=={VERSION}"]
    # Python searches the current folder first, and other users may write to that.
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False,
        timeout=PIP_TIMEOUT, stdin=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        message = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise TransientError(
            f"uv {VERSION}, needed for environments on machines, cannot be downloaded: {message}",
            hint=f"run: pip install uv=={VERSION}",
            changed="nothing was stored",
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        return archive.read(f"uv-{VERSION}.data/scripts/uv")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
