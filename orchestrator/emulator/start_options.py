"""Store the options of a local cloud in its folder, so that the next start uses them too."""

import hashlib
import json
import secrets
import socket
import sys
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.emulator.address import from_stored, to_stored
from orchestrator.emulator.state import tables
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.constraints import CONSTRAINTS
from orchestrator.errors import LocalCloudError
from orchestrator.private_folders import private_file, private_folder

LOWEST_PORT = 10_000
USUAL_LOWEST_GIVEN = 32_768
"""Linux's default start of the port range for outgoing connections."""
LOWEST_NETWORK, NETWORKS = 64, 128
LOOPBACK, LISTENING = 127, "0A"
PACKAGE_LOCK = {"instant": 3.0, "scaled": 6.0, "realistic": 240.0}
"""Seconds that dpkg is locked at a first boot, by latency profile."""
PORTS = ("port", "ssh_port", "metadata_port", "proxy_port", "setup_proxy_port", "iap_port")
PORT_TAKEN = 98
"""Exit status of a daemon whose port is taken (Linux's EADDRINUSE)."""


@dataclass(frozen=True)
class Options:
    """
    The options of one local cloud (file `options.json`).

    *notice* is the time in seconds from the notice to the kill; None means the latency profile's.
    *object_interval* is the minimum time in seconds between two changes of one object, *policy_delay* the
    time until a change of a bucket's policy applies; None means the profile's. Without *seed*, resource ids
    are specific to this cloud. *package_lock* is how many seconds of its first boot a machine's dpkg is
    locked; None means the profile's. *python* is the version on all machines, "" the images' own. *absent*
    names what images lack. *quota* entries read `ID@PLACE=LIMIT`, for example `CPUS@us-central1=8`; other
    quotas are those of a new project or, without *fresh_project*, unlimited. *reservations* entries read
    `NAME@ZONE=TYPE`. The ports are chosen once.
    """

    cloud_id: str = ""
    machines: str = "process"
    latency: str = "scaled"
    notice: float | None = None
    project: str = "local-project"
    seed: int | None = None
    stockouts: tuple[str, ...] = ()
    quota: tuple[str, ...] = ()
    fresh_project: bool = True
    disabled_apis: tuple[str, ...] = ()
    denied_permissions: tuple[str, ...] = ()
    taken_buckets: tuple[str, ...] = ()
    object_interval: float = 1.0
    policy_delay: float | None = None
    package_lock: float | None = None
    python: str = ""
    absent: tuple[str, ...] = ()
    networks: tuple[str, ...] = ("default",)
    constraints: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    port: int = 0
    ssh_port: int = 0
    metadata_port: int = 0
    proxy_port: int = 0
    setup_proxy_port: int = 0
    iap_port: int = 0
    address_base: str = field(default="")

    @property
    def package_lock_seconds(self) -> float:
        """Return how many seconds dpkg is locked; minutes on a real machine (docs/facts.md 5.5)."""
        return PACKAGE_LOCK.get(self.latency, 0.0) if self.package_lock is None else self.package_lock

    @property
    def policy_seconds(self) -> float:
        """Return the seconds until a change of a bucket's policy applies; minutes on the real service."""
        usual = PROFILES[self.latency].policy if self.latency in PROFILES else 0.0
        return usual if self.policy_delay is None else self.policy_delay

    def cloud_settings(self) -> LocalCloudSettings:
        """Return the model's settings. Raise LocalCloudError for an unknown profile or an invalid quota."""
        if self.latency not in PROFILES:
            raise LocalCloudError(
                f"there is no latency profile {self.latency!r}",
                hint=f"choose one of {', '.join(PROFILES)}",
                changed="the local cloud was not started",
            )
        latency = PROFILES[self.latency]
        return LocalCloudSettings(
            project=self.project,
            # Derived from the cloud's id: gcloud's known_hosts is keyed by numeric instance ids, so equal ids
            # of two local clouds would make it refuse host keys.
            seed=int(self.cloud_id or "0", 16) if self.seed is None else self.seed,
            latency=latency if self.notice is None else replace(latency, notice=self.notice),
            quotas=dict(_quota(entry) for entry in self.quota),
            fresh_project=self.fresh_project,
            stockouts=frozenset(self.stockouts),
            disabled_apis=frozenset(self.disabled_apis),
            denied_permissions=frozenset(self.denied_permissions),
            networks=tuple(name for name in self.networks if name != "none"),
            constraints=frozenset(_constraint(name) for name in self.constraints),
            reservations=dict(_reservation(entry) for entry in self.reservations),
            address_base=self.address_base,
        )


def _constraint(name: str) -> str:
    if name.removeprefix("constraints/") not in CONSTRAINTS:
        raise LocalCloudError(
            f"there is no constraint {name!r} in the local cloud",
            hint=f"choose one of {', '.join(CONSTRAINTS)}",
            changed="the local cloud was not started",
        )
    return name.removeprefix("constraints/")


def _reservation(entry: str) -> tuple[tuple[str, str], str]:
    name, _, kind = entry.partition("=")
    reservation, _, zone = name.partition("@")
    if not reservation or kind not in tables.zone_types().get(zone, ()):
        raise LocalCloudError(
            f"reservation {entry!r}: not understood, or the zone has no such type",
            hint="write NAME@ZONE=TYPE, for example mine@us-west4-a=v5litepod-16",
            changed="the local cloud was not started",
        )
    return (zone, reservation), kind


def _quota(entry: str) -> tuple[tuple[str, str], int]:
    name, _, limit = entry.partition("=")
    quota, _, location = name.partition("@")
    if not (quota and location and limit.isdigit()):
        raise LocalCloudError(
            f"quota {entry!r}: not understood",
            hint="write ID@PLACE=LIMIT, for example CPUS@us-central1=8",
            changed="the local cloud was not started",
        )
    return (quota, location), int(limit)


def load_options(folder: Path) -> Options:
    """Return the options stored in *folder*, completed by an id, free ports and an own address range."""
    try:
        body: dict[str, Any] = from_stored(json.loads((folder / "options.json").read_text()))
        lists = {key: tuple(value) for key, value in body.items() if isinstance(value, list)}
        stored = Options(**{**body, **lists})
    except (OSError, ValueError, TypeError):
        stored = Options()
    missing = [name for name in PORTS if not getattr(stored, name)]
    ports: dict[str, Any] = dict(zip(missing, free_ports(len(missing)), strict=True))
    return replace(
        stored, **ports, cloud_id=stored.cloud_id or uuid.uuid4().hex[:12],
        address_base=stored.address_base or free_network(folder),
    )  # fmt: skip


def free_network(folder: Path) -> str:
    """
    Return the base of a loopback address range: the folder's own, else the next one without listeners.

    Machines of two clouds in the same range would collide at port 22.
    """
    first = hashlib.sha256(str(folder).encode()).digest()[0] % NETWORKS
    taken = _listening_networks()
    wanted = [LOWEST_NETWORK + (first + step) % NETWORKS for step in range(NETWORKS)]
    return f"127.{next((one for one in wanted if one not in taken), wanted[0])}.0.0"


def _listening_networks() -> set[int]:
    """Return the second byte of each loopback address with a listener (proc(5), /proc/net/tcp)."""
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return set()
    found = [line.split() for line in lines]
    ends = [fields[1].partition(":")[0] for fields in found if fields[3] == LISTENING]
    addresses = [int(end, 16).to_bytes(4, sys.byteorder) for end in ends]
    return {address[1] for address in addresses if address[0] == LOOPBACK}


def save_options(folder: Path, options: Options) -> None:
    private_folder(folder)
    private_file(folder / "options.json", json.dumps(to_stored(asdict(options)), indent=1).encode())


def without_ports(options: Options) -> Options:
    """Return the options without ports, so that new ones are chosen."""
    return Options(**{**vars(options), **dict.fromkeys(PORTS, 0)})


def free_ports(count: int) -> list[int]:
    """
    Return free loopback ports outside of the range for outgoing connections.

    A port in that range could be taken before the server starts, or while a cloud is stopped.
    """
    taken: list[socket.socket] = []
    try:
        while len(taken) < count:
            one = socket.socket()
            try:
                one.bind(("127.0.0.1", LOWEST_PORT + secrets.randbelow(_lowest_given() - LOWEST_PORT)))
                # Kept bound until all are chosen, or the same port could be returned twice.
                taken.append(one)
            except OSError:
                one.close()
        return [int(one.getsockname()[1]) for one in taken]
    finally:
        for one in taken:
            one.close()


def _lowest_given() -> int:
    """Return the lowest port for outgoing connections (ip(7), ip_local_port_range), with a minimum."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return USUAL_LOWEST_GIVEN
    return lowest if lowest > LOWEST_PORT + 1000 else USUAL_LOWEST_GIVEN
