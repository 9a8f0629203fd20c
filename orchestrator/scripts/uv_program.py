"""
The program uv for machines: that of the installed package, else fetched once from the package index.

It lies in the user's cache under its sha256.
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
"""The platform tags that pip asks the index for."""
PIP_SECONDS = 300


def cache_folder() -> Path:
    """
    Return the folder in which this user's tpuctl keeps uv, and what uv keeps for machines of local clouds.

    Raise UsageError for one that other users may write: what lies in it is run.
    """
    return own_folder(platformdirs.user_cache_path("tpuctl") / "machines", "set XDG_CACHE_HOME")


def shared_folder() -> Path:
    """
    Return the cache folder, made when it is not there, and closed to all but who may write there.

    Whoever may read a file may lock it too, and uv waits for its locks: no machine could be set up.
    """
    folder = cache_folder()
    private_folder(folder)
    mode = cache_folder().stat().st_mode & 0o777  # looked at again: it may have been planted meanwhile
    closed = mode & (0o770 if mode & 0o020 else 0o700)
    if closed != mode:
        with suppress(PermissionError):  # it is root's, and stays as root wants it
            folder.chmod(closed)
    return folder


def installed() -> Path | None:
    """Return the program of the package uv beside tpuctl, whatever its version; None when there is none."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution("uv").files or ():
            if file.name == "uv" and "bin" in file.parts:
                found = Path(str(file.locate())).resolve()
                return found if found.is_file() else None
    return None


def program(machine: str = "") -> Path:
    """
    Return the pinned program for a kind of processor, this computer's when *machine* is empty.

    Raise TransientError when it is neither installed nor cached, and the package index does not give it.
    """
    machine = machine or platform.machine()
    digest = PROGRAMS.get(machine, "")
    cached = cache_folder() / f"uv-{digest}"
    # Under its sha256: another release never overwrites what a machine may be running just now.
    if digest and not cached.exists():
        own = installed() if machine == platform.machine() else None
        _store(own if own and _sha256(own) == digest else None, machine, digest, cached)
    if not digest:
        raise TransientError(
            f"uv {VERSION} is not pinned for {machine} processors",
            hint="machines will lack tpuctl-venv",
        )
    return cached


def any_program() -> Path | None:
    """Return the pinned program, else the installed one; without any, `tpuctl-venv` says what is missing."""
    try:
        return program()
    except TpuctlError:
        return installed()


def packed(machine: str, folder: Path) -> Path:
    """
    Return the file that goes to the bucket as `object_name`, made in *folder* when it is not there.

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
            )
    with replacing(cached, 0o700) as file:
        file.write(data)
    # Machines of a local cloud may run as another user.
    cached.chmod(0o755)


def _downloaded(machine: str, folder: Path) -> bytes:
    """Return the program from the wheel that pip finds where this computer takes its packages from."""
    words = ["download", "--no-deps", "--only-binary=:all:", "--quiet", "--retries=1"]
    words += ["--platform", WHEELS[machine], "--dest", str(folder), f"uv=={VERSION}"]
    # Python looks for a module in the current folder first, and that may be anybody's.
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False,
        timeout=PIP_SECONDS, stdin=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise TransientError(
            f"uv {VERSION}, needed for environments on machines, cannot be downloaded: {reason}",
            hint=f"run: pip install uv=={VERSION}",
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        return archive.read(f"uv-{VERSION}.data/scripts/uv")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
