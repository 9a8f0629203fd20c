"""
Make `tpuctl-venv` environments, one for each list of requirements, and run commands in them.

Needs neither apt nor pip nor the venv module of the image's Python, because uv makes the environment.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.layout import Layout, install_starter
from orchestrator.agent.machine import uv
from orchestrator.agent.machine.emulator_guard import check, for_setup
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.replacing import write_atomically
from orchestrator.contract.trusted_folder import untrusted

COMMAND = "tpuctl-venv"
PYTHON = "TPUCTL_PYTHON"
"""The variable with the version of `job.python`."""
CACHE = "TPUCTL_VENV_CACHE"
_INCLUDED = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)(?:\s+|=)(\S+)")


@dataclass(frozen=True)
class WantedPackages:
    """
    The content of an environment: *lists* with their dependencies, *bare* lists without.

    *python* is a version such as `3.12`, "" for the machine's own.
    """

    lists: Tuple[Path, ...]
    bare: Tuple[Path, ...]
    python: str

    def key(self, version: str) -> str:
        """
        Return the environment's name, a digest of the text of every list and of the Python.

        Raise AgentError for a list that cannot be read.
        """
        digest = hashlib.sha256(f"{self.python}\0{version}\0".encode())
        for mark, lists in ((b"with", self.lists), (b"bare", self.bare)):
            for one in lists:
                for text in _texts(one, set()):
                    digest.update(mark + b"\0%d\0" % len(text) + text)
        return f"py{self.python or version}-{digest.hexdigest()[:40]}"

    def words(self) -> str:
        """Return the names of the lists for a message."""
        return " ".join(one.name for one in (*self.lists, *self.bare)) or "nothing"


def install_command(layout: Layout, agent: Path) -> None:
    """Write `tpuctl-venv` to the machine's folder of programs. Raise OSError."""
    about = "Make the virtual environment of a list of requirements once, and run a command in it."
    install_starter(layout.programs / COMMAND, about, sys.executable, "-E", str(agent), "venv")


def path_of(layout: Layout, environ: Mapping[str, str]) -> str:
    """Return the PATH of setup and job, with our folder of programs first."""
    own = [str(layout.root / "python/bin")] if environ.get(PYTHON) else []
    return os.pathsep.join([str(layout.programs), *own, environ.get("PATH") or os.defpath])


def own_python(environ: Mapping[str, str], layout: Layout, bucket: Callable[[], JobBucket]) -> None:
    """
    Make the Python of `job.python` the machine's `python3` and `pip`, unless it already is.

    uv uses one of the machine or downloads it. Raise AgentError with uv's reason. Packages that an earlier
    setup installed into another Python are installed again.
    """
    wanted, here = environ.get(PYTHON, ""), layout.root / "python"
    if not wanted or (_ready(here) and _text_of(here / "wanted") == wanted):
        return
    shutil.rmtree(str(here), ignore_errors=True)
    # The setup's packages are in the old Python, so the setup must run again.
    for mark in layout.status.parent.glob("setup-*"):
        mark.unlink()
    words = ["venv", "--quiet", "--no-project", "--seed", "--python", wanted, str(here)]
    message = run(words, environ, layout, bucket, captured=True)
    if message:
        missing = f"job.python is {wanted}, which cannot be had on this machine"
        raise AgentError(f"{missing}: {message}. {_ways(wanted, environ)}")
    write_atomically(here / "wanted", wanted)
    write_atomically(here / "complete", _version_of(here))


def main(
    argv: Sequence[str], environ: Mapping[str, str], layout: Layout, bucket: Callable[[], JobBucket]
) -> int:
    """Make the environment; with a command, replace this process by it. Raise AgentError."""
    wanted, command = _read(argv, environ)
    venv = make(wanted, environ, layout, bucket)
    if not command:
        return 0
    inside = inside_of(venv, environ)
    check(inside)
    try:
        os.execvpe(command[0], list(command), inside)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        raise AgentError(f"{COMMAND}: {command[0]} cannot be started: {error.strerror}") from error


def inside_of(venv: Path, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return *environ* with the environment's programs first in PATH."""
    values = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
    path = os.pathsep.join([str(venv / "bin"), environ.get("PATH", os.defpath)])
    return dict(values, VIRTUAL_ENV=str(venv), PATH=path)


def make(
    wanted: WantedPackages, environ: Mapping[str, str], layout: Layout, bucket: Callable[[], JobBucket]
) -> Path:
    """
    Return the environment; create it if needed. An interrupted installation never counts.

    Machines of a rehearsal may share the folder: one of them creates it while the others wait. Raise
    AgentError.
    """
    version = "%d.%d.%d" % sys.version_info[:3]
    cache = _cache(environ, layout)
    venv = cache / wanted.key(version)
    if _ready(venv):
        return venv
    with (cache / f"{venv.name}.lock").open("w") as lock:
        # The kernel releases the lock with the process, so a killed installation blocks nothing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ready(venv):
            print(f"{COMMAND}: installing {wanted.words()} into {venv}", file=sys.stderr, flush=True)
            # A folder without its mark was left by an installation that was killed.
            shutil.rmtree(str(venv), ignore_errors=True)
            _install(wanted, venv, environ, layout, bucket)
    return venv


def _cache(environ: Mapping[str, str], layout: Layout) -> Path:
    """
    Return the folder of environments; create it if needed.

    Raise AgentError if a configured folder is writable by other users, because its programs are executed.
    """
    chosen = environ.get(CACHE)
    cache = Path(chosen or layout.root / "venvs")
    # A configured folder may be below one that all users may write to (/tmp), so it is private.
    cache.mkdir(parents=True, exist_ok=True, mode=0o700 if chosen else 0o777)
    others = untrusted(cache) if chosen else None
    if others:
        raise AgentError(
            f"{COMMAND}: ${CACHE} is {cache}, but {others.message}: what lies in it would run as you"
        )
    return cache


def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    layout: Layout,
    bucket: Callable[[], JobBucket],
    *,
    captured: bool = False,
) -> str:
    """
    Run uv. Raise AgentError if it fails; its own messages go to standard error.

    With *captured*, return the messages instead, "" after success.
    """
    check(environ)
    program = uv.program(layout, environ, bucket)
    done = subprocess.run(  # noqa: PLW1510 (its status is looked at)
        [str(program), *words],
        env=uv.for_uv(for_setup(environ), layout),
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=subprocess.PIPE if captured else None,
    )
    if done.returncode == 0:
        return ""
    if captured:
        return " ".join(done.stderr.decode("utf-8", "replace").split()) or f"status {done.returncode}"
    raise AgentError(f"{COMMAND}: uv {' '.join(words[:2])} failed with status {done.returncode}")


def _ways(version: str, environ: Mapping[str, str]) -> str:
    """Return the remedies for a Python that is missing."""
    if environ.get("UV_PYTHON_DOWNLOADS") == "never":
        here = "a machine of the local cloud has the interpreters of this computer only (PATH, pyenv, uv)"
        return f"Install it there, for example: uv python install {version}; {here}"
    return "uv fetches it from the internet; a machine without outgoing internet has only its image's Python"


def _install(
    wanted: WantedPackages,
    venv: Path,
    environ: Mapping[str, str],
    layout: Layout,
    bucket: Callable[[], JobBucket],
) -> None:
    # Without a version: the interpreter on which this one is based, outside of any environment.
    python = wanted.python or str(getattr(sys, "_base_executable", "") or sys.executable)
    words = ("venv", "--quiet", "--no-project", "--python", python, str(venv))
    message = run(words, environ, layout, bucket, captured=bool(wanted.python))
    if message:
        missing = f"{COMMAND}: Python {python} cannot be had on this machine"
        raise AgentError(f"{missing}: {message}. {_ways(python, environ)}")
    target = ["pip", "install", "--quiet", "--python", str(venv / "bin/python")]
    if environ.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes", "on"):
        target.append("--no-index")  # uv has no variable for this option
    if wanted.lists:
        run([*target, *_flags(wanted.lists)], environ, layout, bucket)
    if wanted.bare:
        run([*target, "--no-deps", *_flags(wanted.bare)], environ, layout, bucket)
    # Written last: it makes the environment count as complete.
    write_atomically(venv / "complete", _version_of(venv))


def _flags(lists: Sequence[Path]) -> List[str]:
    return [word for one in lists for word in ("--requirements", str(one))]


def _ready(venv: Path) -> bool:
    """Return whether the environment is complete and its interpreter still the same."""
    version = _text_of(venv / "complete")
    return bool(version) and version == _version_of(venv)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _version_of(venv: Path) -> str:
    try:
        done = subprocess.run(
            [str(venv / "bin/python"), "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _texts(path: Path, included: Set[Path]) -> Iterator[bytes]:
    """Yield the text of a list and of all lists that it includes, each once. Raise AgentError."""
    if path in included:
        return
    included.add(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise AgentError(f"{COMMAND}: {path} cannot be read: {error.strerror}") from error
    yield text
    for line in text.decode("utf-8", "replace").splitlines():
        found = _INCLUDED.match(line)
        if found and "://" not in found[1]:
            yield from _texts(path.parent / found[1], included)


def _read(argv: Sequence[str], environ: Mapping[str, str]) -> Tuple[WantedPackages, Sequence[str]]:
    words = list(argv)
    command: List[str] = []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        usage=f"{COMMAND} [-p VERSION] -r FILE [-r FILE ...] [--no-deps FILE ...] [-- COMMAND ...]",
        description="Make a virtual environment once for the text of the lists and the Python, and run a "
        "command in it. It lies in $TPUCTL_VENV_CACHE, or in $TPUCTL_ROOT/venvs.",
    )
    parser.add_argument(
        "-r", dest="lists", action="append", default=[], metavar="FILE", help="a list of requirements"
    )
    parser.add_argument(
        "--no-deps", dest="bare", action="append", default=[], metavar="FILE",
        help="a list that is installed after the others, without what its packages require",
    )  # fmt: skip
    parser.add_argument(
        "-p", "--python", metavar="VERSION", default=environ.get(PYTHON, ""),
        help="for example 3.12; the machine's own (or job.python) when left out",
    )  # fmt: skip
    asked = parser.parse_args(words)
    lists, bare = (tuple(Path(one).absolute() for one in names) for names in (asked.lists, asked.bare))
    return WantedPackages(lists, bare, asked.python or ""), command
