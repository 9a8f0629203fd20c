"""
Call the kernel for containers: namespaces(7), mount(2), pivot_root(2). Linux on x86-64 and arm64.

Root needs no user namespace; any other user gets one, in which it is root.
"""

import ctypes
import errno
import os
import platform
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

NEWNS, NEWUSER, NEWPID, NEWIPC = 0x00020000, 0x10000000, 0x20000000, 0x08000000
RDONLY, REMOUNT, BIND, REC, PRIVATE = 1, 32, 4096, 16384, 1 << 18
DETACH = 2
PR_SET_PDEATHSIG = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_LIBC = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process to new namespaces; without root, to a user namespace first. Raise OSError."""
    user, group = os.geteuid(), os.getegid()
    if user:
        _call(_LIBC.unshare, flags | NEWUSER, what="unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    else:
        _call(_LIBC.unshare, flags, what="unshare")


def enter(pid: int) -> None:
    """Enter the namespaces of another process; the PID namespace applies to children only. Raise OSError."""
    opened = []
    # The user namespace first, as it permits the others. All are opened before the file system changes.
    for kind, flag in (("user", NEWUSER), ("mnt", NEWNS), ("ipc", NEWIPC), ("pid", NEWPID)):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if theirs.readlink() != Path(f"/proc/self/ns/{kind}").readlink():
            opened.append((os.open(theirs, os.O_RDONLY | os.O_CLOEXEC), flag))
    for descriptor, flag in opened:
        _call(_LIBC.setns, descriptor, flag, what="setns")
        os.close(descriptor)
    os.chdir("/")


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Attach *source*, a file system of type *kind*, at *target*. Raise OSError."""
    words = [os.fsencode(one) if one else None for one in (source, str(target), kind)]
    _call(_LIBC.mount, *words, ctypes.c_ulong(flags), os.fsencode(options), what=f"mount {target}")


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Bind-mount *source* at *target*, with all mounts below it. Raise OSError."""
    mount(str(source), target, flags=BIND | REC)
    if read_only:
        mount("", target, flags=BIND | REMOUNT | RDONLY)


def pivot(root: Path) -> None:
    """Make *root*, a mount point, this process's root, and unmount the old one. Raise OSError."""
    os.chdir(root)
    # The old root is mounted over the new one until it is detached, so it needs no folder (pivot_root(2)).
    _call(_LIBC.syscall, _PIVOT_ROOT[platform.machine()], b".", b".", what="pivot_root")
    _call(_LIBC.umount2, b".", DETACH, what="umount")
    os.chdir("/")


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def delete(folder: Path) -> None:
    """Delete a folder. Raise OSError, with nothing deleted, if something is mounted in it."""
    place = folder.resolve()
    mounts = (Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if any(one.is_relative_to(place) for one in mounts):
        raise OSError(errno.EBUSY, f"something is mounted below {place}: it is not deleted")
    shutil.rmtree(place, ignore_errors=True)


def inside(folder: Path, call: Callable[[], None]) -> str:
    """Call in a child process whose root is *folder*; return the error, "" for none."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            unshare(NEWNS)
            os.chroot(folder)
            os.chdir("/")
            call()
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}"[:500].encode())
            # _exit, since the child must not run the parent's exit handlers or flush its buffers.
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return text or ("" if not status else f"the child ended with status {status}")


def refused() -> str:
    """Return why containers cannot run here, "" if they can; tried in a child process."""
    if platform.machine() not in _PIVOT_ROOT:
        return f"containers of the local cloud need x86-64 or arm64, and this is {platform.machine()}"

    def attempt() -> None:
        unshare(NEWNS | NEWPID | NEWIPC)
        mount("", Path("/"), flags=REC | PRIVATE)

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            attempt()
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return text


def _call(function: Callable[..., int], *words: object, what: str) -> None:
    if function(*words) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
