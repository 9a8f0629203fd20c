"""Define hosts that SSH reaches, what is run on them, and what they answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.remote_script import RemoteScript
from orchestrator.errors import RemoteError


@dataclass(frozen=True)
class Iap:
    """An instance for Google's Identity-Aware Proxy; *relay* is a local cloud's address, else empty."""

    project: str
    zone: str
    instance: str
    relay: str = ""


@dataclass(frozen=True)
class Host:
    """
    Where a machine listens for SSH, which host keys it must show, and its route.

    With *via* it is reached through that machine, with *iap* through Identity-Aware Proxy, else directly.
    """

    name: str
    address: str
    host_keys: tuple[str, ...]
    port: int = 22
    via: "Host | None" = None
    iap: Iap | None = None


@dataclass(frozen=True)
class RunResult:
    """Exit code and output of a remote command."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class CommandAnswer:
    """Output and exit code of one machine; without an exit code, *error* says why."""

    host: str
    exit_code: int | None
    stdout: str
    stderr: str
    error: RemoteError | None = None


@dataclass(frozen=True)
class MachinePush:
    """The result of a push on one machine; *sent_bytes* is 0 if it had the bundle already."""

    host: str
    sent_bytes: int
    seconds: float
    error: str = ""


class Remote(Protocol):
    """Run commands and copy files over SSH, on all machines in parallel, each step with a timeout."""

    def push(self, hosts: Sequence[Host], bundle: Path, digest: str, root: str) -> list[MachinePush]:
        """Put the bundle (a tar.gz) under `<root>/bundle/<sha256>` on every host, atomically. Raise RemoteError."""

    def put(self, hosts: Sequence[Host], data: bytes, target: str, mode: int) -> None:
        """Put a small file at *target* below the machine folder of every host, atomically. Raise RemoteError."""

    def run(self, hosts: Sequence[Host], command: str, timeout: float, stdin: str = "") -> list[RunResult]:
        """Run a shell command on every host; a lost connection raises RemoteError, it is never success."""

    def run_elevated(self, hosts: Sequence[Host], script: RemoteScript, timeout: float) -> list[RunResult]:
        """Run a script, with sudo if the machine folder needs it; `$1` is that folder. Raise RemoteError."""
