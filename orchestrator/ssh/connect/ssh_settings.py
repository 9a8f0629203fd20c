"""Settings of SSH: user, key, folders and time limits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.ssh.connect.jumps import Jumps

KNOWN_HOSTS = "known_hosts"
"""Name of the folder of stored host keys in a deployment's folder."""


@dataclass(frozen=True)
class SshSettings:
    """
    What is the same for all machines of a deployment; times are in seconds.

    *root* is the machine folder (TPUCTL_ROOT on the machine overrides it), *known_hosts* the folder of stored
    host keys, *stall* the longest silence of a connection, *parallel* the number of hosts at a time, *source*
    the local address that connections start from ("": the system's choice), *jumps* the shared connections to
    jump hosts. *warn* gets warnings for the user. *make_key* is called before each connection, for a key that is
    made when it is first needed.
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
    make_key: Callable[[], object] = field(default=lambda: None, repr=False, compare=False)
