"""How we reach machines: user, key, folder and the bounds of every step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.ssh.jumps import Jumps


@dataclass(frozen=True)
class SshSettings:
    """
    Hold what is the same for all machines of a deployment; times are in seconds.

    *root* is the machine folder (TPUCTL_ROOT on the machine overrides it), *known_hosts* the folder
    of remembered host keys, *stall* the longest silence of a connection, *parallel* the hosts at a time, *source*
    the address of ours that connections start from (the system's choice when empty), *jumps* the connections
    to machines through which others are reached. *warn* is called with what the user should know.
    """

    user: str
    key: Path
    root: str = "/opt/tpuctl"
    known_hosts: Path | None = None
    parallel: int = 16
    connect: float = 15.0
    stall: float = 15.0
    push: float = 900.0
    source: str = ""
    jumps: Jumps = field(default_factory=Jumps, repr=False, compare=False)
    warn: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
