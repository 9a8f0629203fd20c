"""Find and kill every process of a machine, and no other: by marker and by descent, from /proc."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import LocalCloudError

PAUSE = 0.01  # seconds between two looks; a killed process needs a moment to vanish


@dataclass(frozen=True)
class Process:
    """One line of the process table. *started* is in clock ticks since the computer's boot."""

    pid: int
    parent: int
    state: str
    started: int


def look(pid: int) -> Process | None:
    """Return the process, or None when there is none (proc(5), stat: fields 3, 4 and 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    rest = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(rest[1]), rest[0], int(rest[19]))


def command(pid: int) -> str:
    """Return the command line of a process, cut, without what steers a terminal; empty when it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return "".join(one if one.isprintable() else "?" for one in " ".join(words).strip())[:120]


def alive(pid: int, started: int) -> bool:
    """Tell whether this very process still runs; a pid used again by another one does not count."""
    process = look(pid)
    return process is not None and process.started == started and process.state not in "ZX"


def table() -> dict[int, Process]:
    """Return the running processes by pid, zombies left out."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names only, and often
    return {p.pid: p for p in found if p is not None and p.state not in "ZX"}


def pid_namespace(pid: int) -> str:
    """Return the pid namespace of a process (pid_namespaces(7)), empty when it cannot be seen."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def socket_held(inode: int, spaces: set[str]) -> bool:
    """Tell whether a process of these pid namespaces holds the socket *inode* (proc(5), fd)."""
    return socket_holder(inode, (pid for pid in table() if pid_namespace(pid) in spaces)) is not None


def socket_holder(inode: int, pids: Iterable[int]) -> int | None:
    """Return one of *pids* that holds the socket *inode*, None when none does (proc(5), fd)."""
    wanted = f"socket:[{inode}]"
    for pid in pids:
        with suppress(OSError):
            for held in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(held.readlink()) == wanted:
                        return pid
    return None


def machine_marker(pid: int, entry: str, leaders: Mapping[int, str]) -> str:
    """
    Return the machine of a process: a process that hides its marker has a parent that shows one.

    *leaders* maps first processes to machines; empty when nobody on the way up tells.
    """
    processes, start = table(), entry.encode()
    while pid in processes:
        if pid in leaders:
            return leaders[pid]
        with suppress(OSError):
            for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if item.startswith(start):
                    return item[len(start) :].decode(errors="replace")
        pid = processes[pid].parent
    return ""


def carries(pid: int, entry: bytes) -> bool:
    """
    Tell whether the process was started with *entry* in its environment.

    An entry that ends in `/` matches every marker that begins so (a whole local cloud).
    """
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(item.startswith(entry) for item in environ) if entry.endswith(b"/") else entry in environ


def descendants(processes: dict[int, Process], ancestors: Iterable[int]) -> set[int]:
    """Return *ancestors* that run and everything below them."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    queue = [pid for pid in ancestors if pid in processes]
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue.extend(children.get(pid, []))
    return found


def members(entry: str, leaders: Iterable[int] = ()) -> set[int]:
    """Return every process that carries the marker *entry* or descends from one that does."""
    # By marker and by descent: sudo and `env -i` drop the environment, daemons leave their parent.
    processes = table()
    wanted = entry.encode()
    holders = [pid for pid in processes if carries(pid, wanted)]
    return descendants(processes, [*leaders, *holders]) - {os.getpid()}


def kill_all(
    find: Callable[[], set[int]], *, last: Callable[[], Iterable[int]] = tuple, seconds: float = 5.0
) -> None:
    """
    SIGKILL what *find* returns until it returns nothing and all that it ever returned has ended.

    The pids of *last* die only when the others are gone: as a subreaper, the supervisor keeps orphans
    in sight until then. The others die oldest first: a machine's SSH server goes before it could tell how
    a command of its ended. A process that is ending shows no environment any more, so it is remembered.
    Raises LocalCloudError when something survives *seconds*.
    """
    deadline = time.monotonic() + seconds
    started_at: dict[int, int] = {}
    while found := find() | {pid for pid, started in started_at.items() if alive(pid, started)}:
        # In rounds: a process that forks while it is looked for shows its child in the next one.
        for pid in found - started_at.keys():
            process = look(pid)
            started_at[pid] = process.started if process else 0
        for pid in sorted((found - set(last())) or found, key=lambda pid: (started_at[pid], pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise _survivors(found)
        time.sleep(PAUSE)  # Killed processes need real time to go.


def _survivors(pids: Iterable[int]) -> LocalCloudError:
    return LocalCloudError(
        f"These processes of a local machine do not die: {', '.join(str(pid) for pid in sorted(pids))}.",
        hint="Look at them with `ps -o pid,stat,wchan:30,cmd -p PID`, then run `tpuctl local stop`.",
        changed="The machine's disk was kept.",
    )
