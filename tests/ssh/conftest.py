"""Real SSH servers on own loopback addresses: asyncssh in this process, OpenSSH's sshd where it is installed."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from getpass import getuser
from pathlib import Path

import asyncssh
import pytest

from orchestrator.domain.remote import Host
from orchestrator.ssh.keys import DeploymentKey, ensure_key
from orchestrator.ssh.remote import Ssh, SshSettings
from tests.kit.addresses import free_address, free_port
from tests.kit.waiting import until
from tests.ssh.chaos_machine import DeliveryLab
from tests.ssh.remote_machines import AsyncServers, SshMachine
from tests.ssh.remote_relay import Relay

SSHD = "/usr/sbin/sshd"


@pytest.fixture
def key(tmp_path: Path) -> DeploymentKey:
    """Make the deployment's key."""
    return ensure_key(tmp_path / "keys")


@pytest.fixture
def settings(tmp_path: Path, key: DeploymentKey) -> SshSettings:
    """Return settings with short bounds and no folder of their own."""
    return SshSettings(
        getuser(), key.path, root=str(tmp_path / "unused"), known_hosts=tmp_path / "pins", stall=8
    )


@pytest.fixture
def ssh(settings: SshSettings) -> Ssh:
    """Return what is tested."""
    return Ssh(settings)


@pytest.fixture
def bundle_of(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """Pack files given as name=content (main.py) with some ballast that does not compress."""
    from orchestrator.app.source.bundle import build

    def make(main: str, ballast: int = 0) -> tuple[Path, str]:
        source = tmp_path / f"source-{abs(hash((main, ballast)))}"
        source.mkdir(exist_ok=True)
        (source / "main.py").write_text(main)
        (source / "ballast.bin").write_bytes(random.Random(7).randbytes(ballast))
        bundle = build(source, tmp_path / "bundles")
        return bundle.path, bundle.digest

    return make


@pytest.fixture
def servers() -> Iterator[AsyncServers]:
    """Give a test its own asyncssh servers."""
    made = AsyncServers()
    yield made
    made.close()


@pytest.fixture
def machine(servers: AsyncServers, tmp_path: Path, key: DeploymentKey) -> Iterator[SshMachine]:
    """Start one machine on asyncssh."""
    made = servers.start("demo-tpu-g1", tmp_path / "machine", key.public)
    yield made
    made.stop()


@pytest.fixture
def openssh(tmp_path: Path, key: DeploymentKey) -> Iterator[SshMachine]:
    """Run the real sshd, as the current user, on its own address."""
    if not Path(SSHD).exists():
        pytest.skip("no /usr/sbin/sshd on this computer")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    folder, root, address = tmp_path / "sshd", tmp_path / "openssh-machine", free_address()
    folder.mkdir()
    root.mkdir()
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    host_key.write_private_key(str(folder / "host"))
    (folder / "host").chmod(0o600)
    (folder / "authorized").write_text(key.public + "\n")
    port = free_port(address)
    (folder / "config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        "StrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv TPUCTL_ROOT={root}\n"
    )
    daemon = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=(folder / "log").open("w")
    )
    log = (folder / "log").read_text
    text = host_key.export_public_key().decode().strip()
    try:
        until(lambda: "listening" in log(), "sshd listens", 60, 0.02, log)
        yield SshMachine(Host("demo-tpu-g1", address, (text,), port), root, daemon.terminate)
    finally:
        daemon.terminate()
        daemon.wait(10)


@pytest.fixture(params=["asyncssh", "openssh"])
def any_machine(request: pytest.FixtureRequest) -> SshMachine:
    """Give each kind of SSH server in turn."""
    return request.getfixturevalue("machine" if request.param == "asyncssh" else "openssh")


@pytest.fixture
def relay() -> Iterator[Callable[..., tuple[Relay, Host]]]:
    """Put a TCP relay before a machine; it can cut, reset or swallow after so many bytes."""
    made: list[Relay] = []

    def place(machine: SshMachine, after: int | None = None, action: str = "close") -> tuple[Relay, Host]:
        relay = Relay((machine.host.address, machine.host.port), free_address(), after, action)
        made.append(relay)
        return relay, replace(machine.host, address=relay.address, port=relay.port)

    yield place
    for relay in made:
        relay.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this computer does not let us mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[DeliveryLab]:
    """Give a test machines behind toxic proxies."""
    made = DeliveryLab(tmp_path)
    yield made
    made.close()
