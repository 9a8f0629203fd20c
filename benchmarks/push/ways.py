"""Ways to bring a folder to a machine, each as the whole command that one would run."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.push.machines import SshdMachine

Way = Callable[[Path, SshdMachine, str], None]
"""Bring a folder to a machine under a name."""

FABRIC = """
import sys
from pathlib import Path
import fabric, paramiko
source, target, config, host = sys.argv[1:]
settings = fabric.Config(runtime_ssh_path=config)
with fabric.Connection(host, config=settings) as link:
    root = Path(source)
    folders = sorted({file.parent.relative_to(root) for file in root.rglob("*") if file.is_file()})
    link.run("mkdir -p " + " ".join(f"{target}/{folder}" for folder in folders), hide=True)
    for file in root.rglob("*"):
        if file.is_file():
            link.put(str(file), f"{target}/{file.relative_to(root)}")
"""


def tar_over_ssh(source: Path, machine: SshdMachine, name: str) -> None:
    """One stream, unpacked there: the yardstick."""
    target = machine.root / name
    _run(
        f"tar -C {source} -cf - . | "
        f"ssh -F {machine.ssh_config} m 'mkdir -p {target} && tar -C {target} -xf -'"
    )


def warm_tar(source: Path, machine: SshdMachine, name: str) -> None:
    """One stream through a connection that is open already."""
    target, master = machine.root / name, machine.ssh_config.with_name("master")
    ssh = f"ssh -F {machine.ssh_config} -o ControlPath={master}"
    _run(f"tar -C {source} -cf - . | {ssh} m 'mkdir -p {target} && tar -C {target} -xf -'")


def log_in(machine: SshdMachine) -> None:
    """Log in and do nothing: what any way takes that asks the machine whether something has changed."""
    _run(f"ssh -F {machine.ssh_config} m true")


def load_fabric() -> None:
    """Start Python, import the SSH library and end, as quickly as Python lets it."""
    subprocess.run([sys.executable, "-c", "import gc; gc.disable(); import fabric; gc.freeze()"], check=True)


@contextmanager
def connection(machine: SshdMachine) -> Iterator[None]:
    """Keep a connection open for `warm_tar`."""
    words = f"ssh -F {machine.ssh_config} -o ControlPath={machine.ssh_config.with_name('master')}"
    _run(f"{words} -M -N -f m 2>/dev/null")
    try:
        yield
    finally:
        _run(f"{words} -O exit m 2>/dev/null")


def gzip_over_ssh(source: Path, machine: SshdMachine, name: str) -> None:
    """One stream, compressed."""
    target = machine.root / name
    _run(
        f"tar -C {source} -cf - . | gzip -1 | "
        f"ssh -F {machine.ssh_config} m 'mkdir -p {target} && tar -C {target} -xzf -'"
    )


def rsync(source: Path, machine: SshdMachine, name: str) -> None:
    """`rsync -a`, which sends only what differs."""
    _run(f"rsync -a -e 'ssh -F {machine.ssh_config}' {source}/ m:{machine.root / name}/")


def scp(source: Path, machine: SshdMachine, name: str) -> None:
    """`scp -r`, which speaks SFTP."""
    _run(f"scp -q -r -F {machine.ssh_config} {source} m:{machine.root / name}")


def old_scp(source: Path, machine: SshdMachine, name: str) -> None:
    """`scp -O -r`, the protocol before SFTP."""
    _run(f"scp -q -O -r -F {machine.ssh_config} {source} m:{machine.root / name}")


def fabric_put(source: Path, machine: SshdMachine, name: str) -> None:
    """Loop over fabric's Connection.put, with a round trip or more for each file."""
    words = [sys.executable, "-c", FABRIC, source, machine.root / name, machine.ssh_config, "m"]
    subprocess.run([str(word) for word in words], check=True)


def _run(line: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True)
