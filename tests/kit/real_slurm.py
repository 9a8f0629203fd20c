"""
Run Slurm from the distribution's packages with slurm.sh, as a fleet's VM does; nodes are daemons of this computer.

What needs the bucket is left out: the packages are unpacked here, and a node registers without its agent.
"""

import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

from orchestrator.domain.remote import RunResult
from orchestrator.domain.remote_script import RemoteScript
from orchestrator.engine.fleet.slurm import FOLDER
from orchestrator.scripts.render import bash_word
from orchestrator.scripts.shipped import shipped
from tests.kit.waiting import until

ENGINE = f"slurm-{'0' * 64}.tar.gz"
FLEET = "demo"
TIMEOUT = 90.0
"""Seconds of real time in which something that Slurm does by itself must have happened."""


def settings(nodes: int, port: int) -> str:
    """Return the settings as `engine/fleet/slurm.py` writes them."""
    values = {
        "FLEET_DATABASE": "", "FLEET_NAME": FLEET, "FLEET_NODES": nodes, "FLEET_HEAD": "127.0.0.1",
        "FLEET_PORT": port, "FLEET_ENGINE": ENGINE, "FLEET_ZONES": "europe-west4-b",
    }  # fmt: skip
    return "".join(f"{key}={bash_word(value)}\n" for key, value in values.items())


def free_ports(count: int) -> int:
    """Return the first of *count* free ports in a row, below those that the system gives to clients."""
    for first in range(23_040 + os.getpid() % 64 * 128, 32_000, 128):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")


class RealSlurm:
    """A controller of *nodes* nodes below *root*; `join` and `leave` are the life of a node's machine."""

    def __init__(self, root: Path, nodes: int = 2) -> None:
        self.root, self.here = root, root / FOLDER
        tree = self.here / f"tree-{'0' * 12}"
        tree.mkdir(parents=True)
        (root / "machine.env").write_text(f"TPUCTL_ROOT={root}\nTPUCTL_CRON_DIR={root}\n")
        (root / "agent.pyz").write_text("none: what needs the bucket is not under test here")
        script = shipped("slurm.sh").decode()
        (self.here / "slurm.sh").write_text(script)
        names = script.split('packages="', 1)[1].split('"', 1)[0].split()
        subprocess.run(["apt-get", "download", "-qq", *names], cwd=root, check=True, capture_output=True)
        for package in root.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(tree)], check=True)
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            if (tree / "usr/sbin" / f"{name}-wlm").exists():
                (tree / "usr/sbin" / name).unlink(missing_ok=True)
                (tree / "usr/sbin" / name).symlink_to(f"{name}-wlm")
        (self.here / "munge.key").write_bytes(os.urandom(1024))
        (self.here / "munge.key").chmod(0o400)
        # Another test, or what one that was killed has left, may hold any fixed port.
        (self.here / "settings").write_text(settings(nodes, free_ports(1 + nodes)))
        self.word("cron")
        self.until(lambda: "UP" in self.word("call", "scontrol", "ping").stdout, "the controller is up")
        # All nodes are on this computer, where each needs a folder of its own.
        text = re.sub(r"(?m)^(SlurmdSpoolDir=.*)$", r"\1-%n", (self.here / "slurm.conf").read_text())
        text = re.sub(r"(?m)^(Slurmd(?:Pid|Log)File=.*)$", r"\1-%n", text)
        (self.here / "node.conf").write_text(text)

    def word(self, *words: str) -> RunResult:
        """Run a word of slurm.sh."""
        command = ["bash", str(self.here / "slurm.sh"), *words]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        return RunResult(done.returncode, done.stdout, done.stderr)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "TPUCTL_ROOT": str(self.root),
            "TPUCTL_CRON_DIR": str(self.root),
        }

    # What the adapter of the product calls, in place of SSH.

    def put(self, hosts: object, data: bytes, target: str, mode: int) -> None:
        """Write a file below the root."""
        (self.root / target).write_bytes(data)

    def run_elevated(self, hosts: object, script: RemoteScript, deadline: float) -> list[RunResult]:
        """Run a script as on the VM."""
        done = subprocess.run(
            ["bash", "-c", script.bash(), "bash", str(self.root)], env=self._environment(), capture_output=True,
            text=True, check=False, timeout=deadline,
        )  # fmt: skip
        return [RunResult(done.returncode, done.stdout, done.stderr)]

    # The life of nodes.

    def join(self, node: str, incarnation: int) -> None:
        """Let a machine of the node come, as `slurm.sh node` does."""
        self.leave(node)
        reported = self.word("call", "scontrol", "update", f"nodename={node}", f"comment={incarnation}")
        assert reported.exit_code == 0, reported.stderr
        self.start(node)

    def start(self, node: str) -> None:
        """Start the node's daemon, as slurm.sh does."""
        start = (
            f'. "$TPUCTL_ROOT/slurm/settings"; export SLURM_CONF={self.here}/node.conf; '
            f'exec slurmd -D -N {node} -d "$(command -v slurmstepd)"'
        )
        subprocess.Popen(
            ["bash", str(self.here / "slurm.sh"), "call", "bash", "-c", start],
            env={**self._environment(), "NODE": node}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def leave(self, node: str) -> None:
        """Kill the node's machine: its daemon, and what that has started."""
        while found := self._of_node(node):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _of_node(self, node: str) -> list[int]:
        """Return the node's processes, daemons first: they must not report the end of a task that was killed."""
        log, own = str(self.here / "log" / f"slurmd.log-{node}"), {f"NODE={node}", f"SLURMD_NODENAME={node}"}
        daemons, tasks = [], []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environ = (place / "environ").read_text(errors="replace")
                # A slurmstepd has no environment, but keeps the node's log open.
                if (place / "comm").read_text().strip() in ("slurmd", "slurmstepd"):
                    if any(str(one.readlink()) == log for one in (place / "fd").iterdir()):
                        daemons.append(int(place.name))
                elif str(self.root) in environ and own.intersection(environ.split("\0")):
                    tasks.append(int(place.name))
        return daemons + tasks

    def _processes(self) -> list[tuple[int, bytes]]:
        """Return the processes that know this folder, with their environment."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environ = (place / "environ").read_bytes()
                if str(self.root).encode() in environ:
                    found.append((int(place.name), environ))
        return found

    def until(self, holds, what: str) -> None:  # type: ignore[no-untyped-def]
        """Wait until *holds*; each look is a program of Slurm's."""
        until(holds, what, TIMEOUT, 0.3)

    def end(self) -> None:
        """End all that was started here."""
        while found := self._processes():
            for pid, _ in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
