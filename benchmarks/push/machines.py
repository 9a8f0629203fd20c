"""Machines for the benchmark: the real sshd on loopback addresses of its own, each with its own machine folder."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.remote import Host

SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True)
class SshdMachine:
    """Where an sshd listens, its machine folder, and the file with which ssh(1) reaches it as `m`."""

    host: Host
    root: Path
    ssh_config: Path


@contextmanager
def machines(folder: Path, key: Path, public: str, count: int) -> Iterator[list[SshdMachine]]:
    """Run *count* servers that let *key* in; they end with the block."""
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    made = [_files(folder / str(number), key, public, f"127.8.9.{number + 1}") for number in range(count)]
    servers = [
        subprocess.Popen([SSHD, "-D", "-e", "-f", one.ssh_config.with_name("sshd_config")], stderr=log)
        for one in made
        for log in [one.ssh_config.with_name("log").open("w")]
    ]
    try:
        for one in made:
            _wait(one.host)
        yield made
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)


def _files(folder: Path, key: Path, public: str, address: str) -> SshdMachine:
    root = folder / "machine"
    root.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True)
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    with socket.socket() as found:
        found.bind((address, 0))
        port = int(found.getsockname()[1])
    (folder / "authorized").write_text(public + "\n")
    (folder / "known").write_text(f"[{address}]:{port} {host_key}\n")
    # A home of its own: what this computer's user has in .bashrc would run at each login, and count for every way.
    (folder / "home").mkdir()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nAuthorizedKeysFile {folder}/authorized\nPasswordAuthentication no\n"
        f"PermitRootLogin yes\nSetEnv TPUCTL_ROOT={root} HOME={folder}/home\nSubsystem sftp internal-sftp\n"
    )
    (folder / "ssh_config").write_text(
        f"Host m\n  HostName {address}\n  Port {port}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
    )
    return SshdMachine(Host(f"m{address}", address, (host_key,), port), root, folder / "ssh_config")


def _wait(host: Host) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((host.address, host.port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
