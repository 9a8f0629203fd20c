"""Define what all machines of a local cloud share, and the file that a guest reads at boot."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from ipaddress import IPv4Network
from pathlib import Path
from typing import NamedTuple

from orchestrator.emulator.machines.machine_image import IMAGES, interpreter_for
from orchestrator.emulator.state.values.machine import Machine
from orchestrator.private_folders import private_file

MARKER = "TPUCTL_MACHINE"
STANDARD_PORT = 22
"""The port of SSH clients that accept no other, such as gcloud."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def network_of(address: str) -> IPv4Network:
    """Return the network of all machines of the local cloud to which *address* belongs."""
    return IPv4Network(f"{address}/16", strict=False)


class Tools(NamedTuple):
    """
    The computer's programs for machines; "" for none.

    *shared* is the folder of packages that all machines read and extend, *uv* the program.
    """

    shared: Path | str = ""
    uv: Path | str = ""


@dataclass(frozen=True)
class MachineSettings:
    """
    Where machines live and how they reach the local cloud.

    *root* holds one folder for each machine, *cloud_id* is the uid of this local cloud, *endpoint* its base
    URL such as `http://127.0.0.1:8080`. *cron_minute_seconds* is the length of a minute of the machine's cron
    (60: real time), *notice_seconds* the time between `notice` and the kill. *proxy* is the value of
    https_proxy, *setup_proxy* the same for installations, *authorities* the content of CURL_CA_BUNDLE, as
    PEM. *shared* is the folder of packages that all machines read and extend, like a mirror; *uv* the program
    on this computer, *pythons* its interpreters by version, *package_sources* pip's variables. *python* is a
    version that replaces the images', *absent* what images lack besides, *package_lock_seconds* how long dpkg
    is locked at a first boot.
    """

    root: Path
    cloud_id: str
    endpoint: str
    ssh_port: int
    metadata_port: int
    cron_minute_seconds: float = 60.0
    notice_seconds: float = 30.0
    proxy: str = ""
    setup_proxy: str = ""
    authorities: bytes = field(default=b"", repr=False)
    shared: Path | None = None
    uv: Path | None = None
    pythons: Mapping[str, Path] = field(default_factory=dict)
    python: str = ""
    package_lock_seconds: float = 0.0
    absent: frozenset[str] = frozenset()
    package_sources: Mapping[str, str] = field(default_factory=dict, repr=False)

    def folder(self, machine_id: str) -> Path:
        return self.root / machine_id

    def marker(self, machine_id: str) -> str:
        """Return the environment entry that every process of the machine carries."""
        return f"{MARKER}={self.cloud_id}/{machine_id}"


@dataclass(frozen=True)
class GuestConfig:
    """
    The identity of a machine for its guest agent; written as JSON before each boot.

    *state* is the guest's own folder (host key, serial log), *files* the root under which the `process` kind
    keeps home, opt, etc and tmp; *environment* is inherited by every session. *peers* is the network that
    reaches a machine without external address; "" means no restriction. *python* is the computer's
    interpreter below the machine's own, *shared* a folder for it. *absent* and *package_lock_seconds* are
    those of MachineSettings, *silent* is that of Machine.
    """

    kind: str  # "process" or "namespace"
    machine_id: str
    name: str
    address: str
    ssh_port: int
    metadata_port: int
    cron_minute_seconds: float
    state: str
    files: str
    environment: Mapping[str, str] = field(default_factory=dict)
    peers: str = ""
    python: str = ""
    pip: bool = True
    shared: str = ""
    package_lock_seconds: float = 0.0
    absent: tuple[str, ...] = ()
    silent: bool = False

    @classmethod
    def build(
        cls,
        kind: str,
        machine: Machine,
        settings: MachineSettings,
        state: Path,
        environment: Mapping[str, str],
    ) -> "GuestConfig":
        return cls(
            kind=kind,
            machine_id=machine.id,
            name=machine.name,
            silent=machine.silent,
            address=machine.address,
            ssh_port=settings.ssh_port,
            metadata_port=settings.metadata_port,
            cron_minute_seconds=settings.cron_minute_seconds,
            state=str(state),
            files=str(settings.folder(machine.id)) if kind == "process" else "/",
            environment=environment,
            peers=str(network_of(machine.address)) if machine.private else "",
            python=str(interpreter_for(machine.kind, settings.pythons, settings.python)),
            pip=IMAGES[machine.kind].pip,
            shared=str(settings.shared or state),
            package_lock_seconds=settings.package_lock_seconds,
            absent=tuple(sorted(settings.absent)),
        )

    @classmethod
    def read(cls, path: Path) -> "GuestConfig":
        values = json.loads(path.read_text())
        return cls(**{f.name: values[f.name] for f in fields(cls)})

    def write(self, path: Path) -> None:
        private_file(path, json.dumps(asdict(self), indent=1).encode())

    def home(self, user: str) -> Path:
        if self.kind == "namespace":
            return Path("/root") if user == "root" else Path("/home") / user
        return Path(self.files) / "home" / user
