"""
Commands of tpuctl as processes that need not import Google's clients again, which takes a second each time.

One process imports everything and waits. For each command it forks: the child gets the command's own folder,
environment and files, and runs the same `main`. It is a process of its own, to be signalled and killed.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import BinaryIO

REPO = Path(__file__).parents[2]
REQUEST_BYTES = 1_000_000


class RunningCommand:
    """A running command; the part of subprocess.Popen that the tests use."""

    def __init__(self, number: int, words: Sequence[str], reported: FileIO) -> None:
        self.number, self.args, self._ends = number, list(words), reported
        self.pid = int(reported.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, nothing while the process runs."""
        if self.returncode is None and select.select([self._ends], [], [], 0)[0]:
            self.returncode = int(self._ends.readline())
            self._ends.close()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code, negative for a signal; raise TimeoutExpired after *timeout* seconds."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            select.select([self._ends], [], [], remaining)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self.send_signal(signal.SIGKILL)


def start(
    number: int,
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    out: BinaryIO,
    err: BinaryIO,
) -> RunningCommand:
    """Start `tpuctl WORDS` in *folder*; its standard input is empty."""
    request = json.dumps({"words": list(words), "folder": str(folder), "environment": dict(environment)})
    read, write = os.pipe()
    try:
        socket.send_fds(_parent(), [request.encode()], [out.fileno(), err.fileno(), write])
    finally:
        os.close(write)
    return RunningCommand(number, words, os.fdopen(read, "rb", buffering=0))


@cache
def _parent() -> socket.socket:
    """Start the process that imports everything; it ends with this one, whose socket it reads."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
    with its:
        subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.warm", str(its.fileno())], cwd=REPO, pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None,
        )  # fmt: skip
    return mine


def _import_everything() -> None:
    import pkgutil
    from importlib import import_module

    import fabric  # noqa: F401
    import google.cloud.storage
    import google.cloud.tpu_v2  # noqa: F401

    from orchestrator.google.lean_imports import client_class

    client_class("instances", "InstancesClient")
    client_class("zone_operations", "ZoneOperationsClient")
    client_class("projects", "ProjectsClient")
    for name in ("cli", "cli.commands", "cli.views", "google", "engine", "ssh"):
        package = import_module(f"orchestrator.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request. Return the words in the child; leave when nobody can request any more."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not request:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            return _between(json.loads(request), *files)
        for file in files:
            os.close(file)
        _bury()


def _bury() -> None:
    """Take leave of the ended ones between this process and the commands; so their computing time counts."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _between(request: dict, out: int, err: int, reported: int) -> list[str]:
    """Fork the command; report its process id and, at its end, its exit code."""
    pid = os.fork()
    if pid:
        os.write(reported, f"{pid}\n".encode())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(reported, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in (out, err, reported):
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request["words"]


if __name__ == "__main__":
    _import_everything()
    gc.freeze()  # a command need not copy what it only looks at
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    from orchestrator.cli.main import main

    main()
