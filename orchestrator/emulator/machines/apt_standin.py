"""
Emulate apt-get on a machine of kind `process`: obey the machine's locks, never touch the computer.

A package counts as installed if the computer has it. Texts and exit statuses about locks are those of apt
2.6.
"""

import fcntl
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.emulator.machines.start_module import program

PROGRAMS = ("apt", "apt-get", "apt-config")
FAILED = 100
SETTINGS = "etc/apt/apt.conf.d"
TIMEOUT = "DPkg::Lock::Timeout"
FLOCK = "hhqqi"
"""struct flock of fcntl(2), on 64-bit Linux: type, whence, start, length, pid."""
CHANGING = frozenset({"install", "remove", "purge", "upgrade", "full-upgrade", "dist-upgrade", "autoremove"})


def install_apt(folder: Path, files: Path) -> None:
    """Write the stand-ins into *folder*, for the machine whose files are below *files*."""
    for name in PROGRAMS:
        (folder / name).write_text(program("orchestrator.emulator.machines.apt_standin", str(files), name))
        (folder / name).chmod(0o755)
    (files / SETTINGS).mkdir(parents=True, exist_ok=True)


def run(files: Path, name: str, words: Sequence[str]) -> int:
    if name == "apt-config":
        return _config(files, words)
    settings, plain = _read(files, words)
    verb = next(iter(plain), "")
    if verb == "update":
        lists = files / "var/lib/apt/lists"
        if _taken(lists / "lock", 0.0):
            return _say(f"E: Unable to lock directory {lists}/", FAILED)
        _show("Reading package lists... Done")
        return 0
    if verb == "download":
        return _download(plain[1:])
    if verb not in CHANGING:
        _show(f"{name}: a machine of the local cloud takes update, download, {', '.join(sorted(CHANGING))}")
        return 0 if verb in {"clean", "autoclean", ""} else FAILED
    if _taken(files / "var/lib/dpkg/lock-frontend", float(settings.get(TIMEOUT, "0"))):
        text = f"E: Unable to acquire the dpkg frontend lock ({files}/var/lib/dpkg/lock-frontend)"
        return _say(f"{text}, is another process using it?", FAILED)
    return _install(plain[1:]) if verb == "install" else 0


def _install(packages: Sequence[str]) -> int:
    """Accept packages that the computer has."""
    absent = [one for one in packages if not _installed(one.partition("=")[0].partition(":")[0])]
    for one in packages:
        if one not in absent:
            _show(f"{one} is already the newest version.")
    if not absent:
        return 0
    words = " ".join(absent)
    _say(f"E: Unable to locate package {words}", FAILED)
    return _say(
        f"N: This machine is a process of your computer, on which nothing is installed for it. Run there: "
        f"apt-get install {words}; or use machines with their own apt: tpuctl local start --machines namespace",
        FAILED,
    )


def _download(packages: Sequence[str]) -> int:
    """Download package files into the working folder with the computer's own apt-get."""
    own = shutil.which("apt-get", path="/usr/bin:/bin")
    if own is None:
        return _say("E: Unable to locate package: this computer has no apt-get", FAILED)
    # Without the machine's proxy, which blocks package sources; those of the computer are used.
    apart = ("_proxy", "apt_config")
    environ = {key: value for key, value in os.environ.items() if not key.lower().endswith(apart)}
    return subprocess.run([own, "download", "-qq", *packages], env=environ, check=False).returncode


def _installed(package: str) -> bool:
    asked = shutil.which("dpkg-query", path="/usr/bin:/bin")
    if asked is None:
        return False
    words = [asked, "-W", "-f", "${db:Status-Status}", package]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout == "installed"


def _taken(path: Path, timeout: float) -> bool:
    """Return whether another process holds the lock for *timeout* seconds (negative: wait forever)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    end, announced = time.monotonic() + timeout, False
    with path.open("a+b") as file:
        while holder := _holder(file.fileno()):
            text = f"Could not get lock {path}. It is held by process {holder} ({_name_of(holder)})"
            if timeout >= 0 and time.monotonic() >= end:
                _say(f"E: {text}", FAILED)
                return True
            if not announced:
                _show(f"Waiting for cache lock: {text}...")
            announced = True
            time.sleep(0.2)  # Another process, so this wait is real time.
    return False


def _holder(file: int) -> int:
    # F_GETLK only queries; taking the lock, even briefly, would keep the next holder out.
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, _, _, _, pid = struct.unpack(FLOCK, answer)
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def _read(files: Path, words: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
    """Return the settings, with those of the command line last, and the arguments that are no options."""
    settings: dict[str, str] = {}
    chosen = os.environ.get("APT_CONFIG")
    for path in (*([Path(chosen)] if chosen else []), *sorted((files / SETTINGS).glob("*"))):
        if path.is_file():
            settings |= dict(re.findall(r'^\s*([\w:-]+)\s+"([^"]*)"\s*;', path.read_text(), re.MULTILINE))
    plain: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in {"-o", "--option", "-c", "--config-file", "-t", "--target-release"}:
            value = rest.pop(0) if rest else ""
            if word in {"-o", "--option"}:
                settings.update(_pair(value))
        elif word.startswith("-o") and "=" in word:
            settings.update(_pair(word[2:]))
        elif not word.startswith("-"):
            plain.append(word)
    return settings, plain


def _pair(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    return {name: value} if equals else {}


def _config(files: Path, words: Sequence[str]) -> int:
    """Answer `apt-config shell NAME Dir::State::Lists/d`, with which scripts find the lists."""
    if len(words) == 3 and words[0] == "shell" and words[2] == "Dir::State::Lists/d":
        _show(f"{words[1]}={shlex.quote(f'{files}/var/lib/apt/lists/')}")
    return 0


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(text: str, status: int) -> int:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
