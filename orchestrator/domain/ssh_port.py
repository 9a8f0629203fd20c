"""The seam between the engine and machines that are reached over SSH."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Iap:
    """Name an instance as Google's Identity-Aware Proxy knows it; *relay* is a local cloud's, else empty."""

    project: str
    zone: str
    instance: str
    relay: str = ""


@dataclass(frozen=True)
class Host:
    """
    Say where a machine listens for SSH, which host keys it must show, and how it is reached.

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
    """Hold the end of a remote command."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class PushResult:
    """Hold what a push did on one machine; *sent_bytes* is 0 when the tree was there already."""

    host: str
    sent_bytes: int
    seconds: float
    error: str = ""


class Remote(Protocol):
    """Reach machines over SSH, all of them in parallel, each step with a deadline."""

    def push(self, hosts: Sequence[Host], bundle: Path, digest: str, root: str) -> list[PushResult]:
        """Put the bundle (a tar.gz) under `<root>/bundle/<sha256>` on every host: all of it, or nothing."""

    def put(self, hosts: Sequence[Host], data: bytes, target: str, mode: int) -> None:
        """Put a small file at *target* below the machine folder of every host, whole or not at all."""

    def run(self, hosts: Sequence[Host], command: str, deadline: float, stdin: str = "") -> list[RunResult]:
        """Run a shell command on every host; a lost channel raises RemoteError, it is never success."""

    def run_elevated(self, hosts: Sequence[Host], script: str, deadline: float) -> list[RunResult]:
        """Run a bash script with the rights that the machine folder needs; `$1` is that folder."""
