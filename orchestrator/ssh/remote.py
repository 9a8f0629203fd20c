"""Implement the Remote port over SSH, on all machines in parallel."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.domain.remote import CommandAnswer, Host, MachinePush, RunResult
from orchestrator.domain.remote_script import RemoteScript
from orchestrator.errors import HostKeyError, RemoteError
from orchestrator.ssh.connect.ssh_settings import SshSettings
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import answer_of, follow, run_one
from orchestrator.ssh.terminal import shell
from orchestrator.ssh.transfer.upload import map_file, push_one, put_one

if TYPE_CHECKING:
    from orchestrator.ssh.connect.connection import Connection

__all__ = ["Ssh", "SshSettings"]

T = TypeVar("T")


class Ssh:
    """Reach machines over SSH, `settings.parallel` at a time, each step with a timeout."""

    def __init__(self, settings: SshSettings) -> None:
        self.settings = settings

    def connect(self, host: Host, timeout: float | None = None) -> "Connection":
        """Return a connection to *host*, not opened yet. Every connection of this class comes from here."""
        # fabric and paramiko take 0.3 s, and most commands reach no machine.
        from orchestrator.ssh.connect.connection import Connection

        self.settings.make_key()
        return Connection(host, self.settings, timeout)

    def push(self, hosts: Sequence[Host], bundle: Path, digest: str, root: str = "") -> list[MachinePush]:
        """Install the bundle on every host; a failure is in the host's result. Raise HostKeyError only."""
        data, target = map_file(bundle), root or self.settings.root
        return self._each(
            hosts, self.settings.push, lambda connection: push_one(connection, data, digest, target)
        )

    def run(self, hosts: Sequence[Host], command: str, timeout: float, stdin: str = "") -> list[RunResult]:
        """Run a shell command on every host within *timeout* seconds; raise RemoteError if one fails."""
        return self._each(hosts, timeout, lambda connection: run_one(connection, command, stdin.encode()))

    def ask(self, hosts: Sequence[Host], command: str, timeout: float) -> list[CommandAnswer]:
        """Run a shell command on every host within *timeout* seconds; a failure is in the host's answer."""
        return self._each(hosts, timeout, lambda connection: answer_of(connection, command))

    def run_elevated(self, hosts: Sequence[Host], script: RemoteScript, timeout: float) -> list[RunResult]:
        """Run a script with the rights that the machine folder (its `$1`) needs. Raise RemoteError."""
        command = elevated(script, self.settings.root)
        return self._each(hosts, timeout, lambda connection: run_one(connection, command))

    def put(self, hosts: Sequence[Host], data: bytes, target: str, mode: int = 0o644) -> None:
        """
        Write a small file at *target*, below the machine folder of every host, atomically.

        Raise RemoteError.
        """
        root = self.settings.root
        self._each(
            hosts, self.settings.push, lambda connection: put_one(connection, data, root, target, mode)
        )

    def follow(self, host: Host, command: str) -> Iterator[str]:
        """Yield the output lines of a command as they arrive. Raise RemoteError when the connection is lost."""
        return follow(self.connect(host), command)

    def shell(self, host: Host, command: str | None = None) -> int:
        """Open an interactive shell (or run one command) on *host*; return its exit code. Raise RemoteError."""
        return shell(self.connect(host), command)

    def _each(self, hosts: Sequence[Host], timeout: float, work: "Callable[[Connection], T]") -> list[T]:
        """
        Run *work* for all hosts in parallel, wait for all of them, then raise the most important error.

        An interrupt closes every connection, so that no thread outlives the command.
        """
        connections = [self.connect(host, timeout) for host in hosts]
        pool = ThreadPoolExecutor(max(1, min(self.settings.parallel, len(hosts))), "ssh")
        try:
            futures = [pool.submit(work, connection) for connection in connections]
            errors = [error for future in futures if (error := future.exception()) is not None]
        except BaseException:
            # Python joins its threads at exit, and a thread cannot be interrupted; closing its connection ends it.
            for connection in connections:
                connection.cancel()
            raise
        finally:
            # Without waiting: after an interrupt, threads end as their connections close.
            pool.shutdown(wait=False, cancel_futures=True)
        if errors:
            raise _together(errors)
        return [future.result() for future in futures]


def _together(errors: Sequence[BaseException]) -> BaseException:
    """Return one error for many: a wrong host key first, then errors that are not SSH's, then all others joined."""
    ranked = sorted(
        errors, key=lambda error: (not isinstance(error, HostKeyError), isinstance(error, RemoteError))
    )
    first = ranked[0]
    if len(errors) == 1 or not isinstance(first, RemoteError) or isinstance(first, HostKeyError):
        return first
    return RemoteError("; ".join(str(error) for error in errors), hint=first.hint, changed=first.changed)
