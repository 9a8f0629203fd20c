"""
Run one container of the docker stand-in, as containerd's shim and runc do for the real one.

Started as `python -m orchestrator.emulator.machines.docker_container FOLDER` with a clean environment, so that it
outlives the command that started it. FOLDER/config.json says what to run.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.emulator.machines import namespaces
from orchestrator.emulator.machines.process_table import process_of

CANNOT_START, NOT_FOUND, NOT_EXECUTABLE = 125, 127, 126
"""Exit statuses of `docker run` itself, as opposed to the command's."""
PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
GROUP = "TINI_KILL_PROCESS_GROUP"
"""Variable with which tini, docker's init, forwards signals to a whole process group."""
SHOWN = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
DESCRIPTORS = "/proc/self/fd"
MAX_LINKS = 40


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a machine's containers and images."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(words: list[str]) -> int:
    folder = Path(words[0])
    config = json.loads((folder / "config.json").read_text())
    with locked(folder.parents[1]):
        # Removed between the two steps of docker run, so it must never start.
        if not (folder / "config.json").exists():
            return CANNOT_START
        process = process_of(os.getpid())
        (folder / "pid").write_text(f"{os.getpid()} {process.started if process else 0}")
    (folder / "work").mkdir(exist_ok=True)
    # In a process of its own: its mounts disappear with it, and nothing is deleted where they are visible.
    code = _forked(lambda: _with_mounts(folder, config))
    with locked(folder.parents[1]):
        if config["remove"]:
            namespaces.delete(folder)
        else:
            (folder / "code").write_text(str(code))
    return code


def _forked(call: Callable[[], int]) -> int:
    """Call in a child process that dies with this one; forward signals, and return its exit status."""
    child = os.fork()
    if not child:
        code = CANNOT_START
        try:
            namespaces.die_with_parent()
            code = call()
        except OSError as error:
            os.write(2, f"docker: Error response from daemon: {error}\n".encode())
        finally:
            # _exit, since the child must not run the parent's exit handlers or flush its buffers.
            os._exit(code)
    for number in PASSED:
        signal.signal(number, lambda passed, _frame: _kill(child, passed))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _with_mounts(folder: Path, config: dict[str, Any]) -> int:
    namespaces.unshare(namespaces.NEWNS)
    namespaces.mount("", Path("/"), flags=namespaces.REC | namespaces.PRIVATE)
    root = _file_system(folder / "work", config)
    _populate(root, config)
    code = _forked(lambda: _alone(folder, root, config))
    if not config["remove"]:
        # cp -a keeps the overlay's extended attributes and whiteouts.
        subprocess.run(["cp", "-a", str(folder / "work/upper"), str(folder / "diff")], check=True)
    return code


def entered(pid: int, config: dict[str, Any], *, interactive: bool) -> int:
    """Run another command in the container whose pid 1 is *pid*; return its exit status. Raise OSError."""

    def in_own_namespaces() -> int:
        namespaces.enter(pid)
        # A new PID namespace applies to child processes only.
        child = os.fork()
        if not child:
            namespaces.die_with_parent()
            if not interactive:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(config["folder"])
            _execute(config)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code if code >= 0 else 128 - code

    return _forked(in_own_namespaces)


def _alone(folder: Path, root: Path, config: dict[str, Any]) -> int:
    """Run it in its own PID namespace; when its pid 1 ends, the kernel ends everything in it."""
    namespaces.unshare(namespaces.NEWPID | namespaces.NEWIPC)
    out, err, ready = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        for here, (_, writer) in ((1, out), (2, err)):
            os.dup2(writer, here)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _become(root, config, ready[1])
    for number in PASSED:
        signal.signal(number, lambda passed, _frame: _kill(child, passed))
    for _, writer in (out, err, ready):
        os.close(writer)
    # Closed when pid 1 has moved into the image or ended; before, `exec` would enter the machine's root.
    os.read(ready[0], 1)
    (folder / "init").write_text(str(child))
    _pass_on({out[0]: 1, err[0]: 2})
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _file_system(work: Path, config: dict[str, Any]) -> Path:
    """Mount the image below a writable layer in memory; return the mount point. Raise OSError."""
    namespaces.mount("tmpfs", work, "tmpfs", options="mode=0755")
    for name in ("upper", "scratch", "root"):
        (work / name).mkdir()
    root = work / "root"
    try:
        # By descriptors, since commas and colons in a path would end an option.
        lowers = [os.open(one, os.O_PATH) for one in config["lowers"]]
        upper, scratch = (os.open(work / name, os.O_PATH) for name in ("upper", "scratch"))
        places = ":".join(f"{DESCRIPTORS}/{one}" for one in lowers)
        options = f"lowerdir={places},upperdir={DESCRIPTORS}/{upper},workdir={DESCRIPTORS}/{scratch}"
        namespaces.mount("overlay", root, "overlay", options=options)
    except OSError as error:
        raise OSError(error.errno, f"an overlay of the image is refused here: {error.strerror}") from error
    return root


def _populate(root: Path, config: dict[str, Any]) -> None:
    """Mount devices, host names and volumes. Raise OSError."""
    for name in ("dev", "sys", "proc", "etc"):
        (root / name).mkdir(exist_ok=True)
    # Not the computer's own /dev, which root in the container could change.
    namespaces.mount("tmpfs", root / "dev", "tmpfs", options="mode=0755")
    for name in DEVICES:
        (root / "dev" / name).touch()
        namespaces.bind(Path("/dev", name), root / "dev" / name)
    for name, target in DEVICE_LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/shm").mkdir()
    namespaces.mount("tmpfs", root / "dev/shm", "tmpfs", options="mode=1777")
    try:
        namespaces.mount("sysfs", root / "sys", "sysfs", flags=namespaces.RDONLY)
    except OSError:  # a user without root owns no network namespace whose sysfs could be mounted
        namespaces.bind(Path("/sys"), root / "sys")
    for name in SHOWN:
        if Path(name).is_file():
            _show(root, Path(name).resolve(), name, read_only=True)
    for source, target, read_only in config["volumes"]:
        _show(root, Path(source), target, read_only=read_only)


def _show(root: Path, source: Path, target: str, *, read_only: bool) -> None:
    place = within(root, target)
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    namespaces.bind(source, place, read_only=read_only)


def within(root: Path, target: str) -> Path:
    """Return the path of *target* below *root*, resolving links inside the image. Raise OSError."""
    found: list[str] = []
    ahead, hops = list(Path(target).parts[1:]), 0
    while ahead:
        part = ahead.pop(0)
        here = root.joinpath(*found, part)
        if part == "..":
            found = found[:-1]
        elif here.is_symlink():
            link, hops = here.readlink(), hops + 1
            if hops > MAX_LINKS:
                raise OSError(errno.ELOOP, f"too many links in {target}")
            found = [] if link.is_absolute() else found
            ahead = [one for one in link.parts if one != "/"] + ahead
        else:
            found.append(part)
    return root.joinpath(*found)


def _become(root: Path, config: dict[str, Any], ready: int) -> None:
    """As pid 1: enter the image, close *ready*, and exec the command or its init. Never returns."""
    try:
        namespaces.die_with_parent()
        # A mount namespace of its own, so that the shim keeps the machine's view and the container's layer.
        namespaces.unshare(namespaces.NEWNS)
        namespaces.mount("proc", root / "proc", "proc")
        namespaces.pivot(root)
        folder = config["folder"] or "/"
        if not Path(folder).is_dir():
            Path(folder).mkdir(parents=True)
        os.chdir(folder)
        os.close(ready)
    except OSError as error:
        os.write(2, f"docker: Error response from daemon: {error}\n".encode())
        os._exit(CANNOT_START)
    if config["init"]:
        _init(config)
    _execute(config)


def _init(config: dict[str, Any]) -> None:
    """Act like tini: one child in its own process group, forward signals, reap orphans. Never returns."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _execute(config)
    with contextlib.suppress(OSError):  # the child has done it, or has ended
        os.setpgid(child, child)
    target = -child if config["environment"].get(GROUP) else child
    for number in PASSED:
        signal.signal(number, lambda passed, _frame: _kill(target, passed))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _execute(config: dict[str, Any]) -> None:
    """Exec the command. Never returns."""
    for number in PASSED:
        # exec keeps ignored signals ignored, and the command must start with the defaults.
        signal.signal(number, signal.SIG_DFL)
    words, environment = config["command"], config["environment"]
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        text = f'exec: "{words[0]}": {error.strerror}'
        os.write(2, f"docker: Error response from daemon: failed to create task: {text}\n".encode())
        os._exit(NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pass_on(ends: dict[int, int]) -> None:
    """Forward output until the container has ended; if the reader is gone, discard it."""
    # No threads: after unshare(NEWPID) the kernel does not let this process create any.
    while ends:
        for source in select.select(list(ends), [], [])[0]:
            data, target = os.read(source, 1 << 16), ends[source]
            if not data:
                del ends[source]
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(target, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
