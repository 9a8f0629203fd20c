"""Find and kill every process of a machine by marker and by descent, from /proc."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import LocalCloudError

PAUSE = 0.01  # seconds between two rounds; a killed process takes a moment to disappear


@dataclass(frozen=True)
class Process:
    """One process of the process table; *started* is in clock ticks since boot."""

    pid: int
    parent: int
    state: str
    started: int


def process_of(pid: int) -> Process | None:
    """Return the process, None if there is none (proc(5), stat: fields 3, 4 and 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    rest = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(rest[1]), rest[0], int(rest[19]))


def command(pid: int) -> str:
    """Return a process's command line, shortened and without control characters; "" if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return "".join(one if one.isprintable() else "?" for one in " ".join(words).strip())[:120]


def alive(pid: int, started: int) -> bool:
    """Return whether this process still runs, as opposed to one with a reused pid."""
    process = process_of(pid)
    return process is not None and process.started == started and process.state not in "ZX"


def table() -> dict[int, Process]:
    """Return the running processes by pid, zombies left out."""
    found = (process_of(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names only, and often
    return {p.pid: p for p in found if p is not None and p.state not in "ZX"}


def pid_namespace(pid: int) -> str:
    """Return the PID namespace of a process (pid_namespaces(7)), "" if it is not readable."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def socket_held(inode: int, spaces: set[str]) -> bool:
    """Return whether a process of these PID namespaces holds the socket *inode* (proc(5), fd)."""
    return socket_pid(inode, (pid for pid in table() if pid_namespace(pid) in spaces)) is not None


def socket_pid(inode: int, pids: Iterable[int]) -> int | None:
    """Return one of *pids* that holds the socket *inode*, None if none does (proc(5), fd)."""
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
    Return the machine of a process from its marker, or from that of its nearest ancestor with one.

    *leaders* maps first processes to machines. "" if no ancestor is known.
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
    Return whether the process was started with *entry* in its environment.

    An entry that ends in `/` matches every marker with that prefix (a whole local cloud).
    """
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(item.startswith(entry) for item in environ) if entry.endswith(b"/") else entry in environ


def descendants(processes: dict[int, Process], ancestors: Iterable[int]) -> set[int]:
    """Return the running processes among *ancestors* and all their descendants."""
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
    """Return every process that has the marker *entry* or an ancestor with it."""
    # Both, because sudo and `env -i` clear the environment and daemons leave their parent.
    processes = table()
    wanted = entry.encode()
    holders = [pid for pid in processes if carries(pid, wanted)]
    return descendants(processes, [*leaders, *holders]) - {os.getpid()}


def kill_all(
    find: Callable[[], set[int]], *, last: Callable[[], Iterable[int]] = tuple, timeout: float = 5.0
) -> None:
    """
    SIGKILL what *find* returns until it returns nothing and everything it ever returned has ended.

    The pids of *last* are killed after the others: the supervisor, a subreaper, keeps orphans below it until
    then. The others are killed oldest first, so that a machine's SSH server cannot report how a command of
    its ended. An ending process has no environment any more, so it is remembered. Raise LocalCloudError if
    something survives *timeout* seconds.
    """
    deadline = time.monotonic() + timeout
    started_at: dict[int, int] = {}
    while found := find() | {pid for pid, started in started_at.items() if alive(pid, started)}:
        # In rounds, because a process may fork during the search; its child is found in the next round.
        for pid in found - started_at.keys():
            process = process_of(pid)
            started_at[pid] = process.started if process else 0
        for pid in sorted((found - set(last())) or found, key=lambda pid: (started_at[pid], pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise _survivors(found)
        time.sleep(PAUSE)  # Killed processes take real time to end.


def _survivors(pids: Iterable[int]) -> LocalCloudError:
    return LocalCloudError(
        f"these processes of a local machine do not die: {', '.join(str(pid) for pid in sorted(pids))}",
        hint="look at them with `ps -o pid,stat,wchan:30,cmd -p PID`, then run `tpuctl local stop`",
        changed="the machine's disk was kept",
    )
