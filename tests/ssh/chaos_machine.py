"""A machine behind a toxic proxy: the local cloud's SSH server, the real start-job, and gates at which it waits."""

import asyncio
import hashlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import asyncssh

from orchestrator.app.source.bundle import build
from orchestrator.domain.observation import Absent
from orchestrator.domain.plan import Verb
from orchestrator.domain.remote import Host
from orchestrator.emulator.machines.machine_settings import GuestConfig
from orchestrator.emulator.machines.ssh_server import SshServer
from orchestrator.engine.reconcile.deliver import deliver
from orchestrator.errors import TpuctlError
from orchestrator.scripts.render import machine_scripts
from orchestrator.ssh.keys import DeploymentKey, ensure_key
from orchestrator.ssh.remote import Ssh, SshSettings
from tests.kit.addresses import free_address, free_port
from tests.kit.records import record_of
from tests.kit.waiting import until
from tests.scripts.render_kit import a_job_spec, a_target
from tests.ssh.toxics import Proxy

C = TypeVar("C")
T = TypeVar("T")
AT_A_TIME = 8
TIMEOUT = 120.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
AGENT = b"""
import os, sys, time
root = os.path.dirname(sys.argv[0])
with open(root + "/state/starts", "a") as file:
    file.write(os.readlink(root + "/current") + "\\n")
time.sleep(120)
"""
GATE = """#!/bin/bash
mkdir "$GATES/$1.taken" 2>/dev/null || exit 0  # the first comer waits, later ones do not
: > "$GATES/$1"
until [ -e "$GATES/$1.go" ]; do sleep 0.02; done
"""
MV = """#!/bin/bash
case "$*" in
  *.tmp-dir-*) gate commit ;;
  */current) gate switch ;;
esac
exec /bin/mv "$@"
"""
START = """#!/bin/bash
gate begin
"${0%/*}/start-job.real" "$@" || exit
echo said
gate output
gate exit
"""
GATES = ("commit", "switch", "begin", "output", "exit")


class ServerLoop:
    """One event loop in a side thread, for all servers and proxies of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT)

    def close(self) -> None:
        """End what is left on the loop."""

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=2)  # Commands of ended connections end in real time.
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class ChaosMachine:
    """A machine that has an older tree and no job yet; *host* leads to it through the proxy."""

    def __init__(self, loop: ServerLoop, folder: Path, key: DeploymentKey, root: Path | None = None) -> None:
        self.loop = loop
        self.root = root or folder / "root"
        self.gates = folder / "gates"
        self.key = key
        self._folder = folder
        self._furnish()
        self._address = free_address()
        self._port = free_port(self._address)
        self._server = self._serve("host-key")
        self.proxy = Proxy((self._address, self._port), free_address())
        loop.run(self.proxy.open())
        self.host = Host("demo-tpu-g3-w0", self.proxy.address, (self.host_key,), self.proxy.port)

    def change_host_key(self) -> None:
        """Let another machine answer at the address."""
        self.loop.run(self._server.stop())
        self._server = self._serve("other-key")

    def refuse_logins(self, refuse: bool) -> None:
        """Know the deployment's key, or not."""
        self._server.accounts = {} if refuse else {getuser(): (self.key.public,)}

    def settings(self, bound: float) -> SshSettings:
        """Return settings whose every wait is bounded by *bound* seconds of silence."""
        return SshSettings(getuser(), self.key.path, connect=bound, stall=bound, push=TIMEOUT)

    def deliver(self, bundle: tuple[Path, str], bound: float) -> tuple[str, float]:
        """Deliver code and start the job as the loop does; return the error, empty for none, and the seconds."""
        keys = SimpleNamespace(host_keys=lambda *_: self.host.host_keys)
        cloud = SimpleNamespace(
            nodes=keys, remote=Ssh(self.settings(bound)), ssh_port=self.host.port, inside=False
        )
        worker = SimpleNamespace(index=0, external_ip=self.host.address)
        node = SimpleNamespace(name="demo-tpu-g3", zone="europe-west4-b", workers=(worker,))
        target = a_target(bundle=bundle[1])
        blueprint = SimpleNamespace(
            spec=a_job_spec(), scripts=lambda *_, **__: machine_scripts(a_job_spec(), target)
        )
        agent = self._folder / "agent.py"
        agent.write_bytes(AGENT)
        artifacts = SimpleNamespace(bundle=bundle[0], agent=agent)
        errors: list[str] = []
        world = SimpleNamespace(vm=Absent())

        def work() -> None:
            try:
                deliver(
                    cloud, blueprint, artifacts, record_of(bundle=bundle[1]), node, world,
                    SimpleNamespace(verb=Verb.CREATE),
                )  # fmt: skip
            except TpuctlError as fault:
                errors.append(fault.message)

        begun, thread = time.monotonic(), threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "the delivery does not end"
        return "".join(errors), time.monotonic() - begun

    def arm(self, toxic: str, moment: "str | int", allowed: int = 0) -> None:
        """Let the network go bad at a moment of the next connections, see `toxics`."""
        self.loop.run(self.proxy.arm(toxic, moment, allowed))

    def struck(self) -> bool:
        """Return whether the network has gone bad."""
        return self.proxy.struck

    def heal(self) -> None:
        """Treat new connections well; old ones stay as they are."""
        self.loop.run(self.proxy.heal())

    def let_old_connections_go(self) -> None:
        """End every connection, as a network does in the end that has swallowed data for long."""
        self.loop.run(self.proxy.drop())

    def strike_at(self, gate: str, hold: bool = False) -> None:
        """Let the network go bad when the machine comes to *gate*; then let it go on, unless *hold* is true."""
        (self.gates / f"{gate}.go").unlink()

        def watch() -> None:
            self.until((self.gates / gate).exists, f"the machine came to {gate}")
            self.loop.run(self.proxy.strike())
            if not hold:
                self.let_go(gate)

        threading.Thread(target=watch, daemon=True).start()

    def let_go(self, gate: str) -> None:
        """Let what waits at *gate* go on."""
        (self.gates / f"{gate}.go").touch()

    def tree(self) -> dict[str, str]:
        """Return the files of `current` with their sha256."""
        place = (self.root / "current").resolve()
        files = (one for one in place.rglob("*") if one.is_file() and one.name != ".tpuctl-bundle")
        return {str(one.relative_to(place)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}

    def leftovers(self) -> list[str]:
        """Return temporary names that a delivery left."""
        names = [*self.root.glob(".*"), *self.root.glob("*.tmp.*"), *self.root.glob("bundle/.*")]
        return sorted(one.name for one in names)

    def starts(self) -> list[str]:
        """Return for every start of the job which tree was current."""
        path = self.root / "state" / "starts"
        return path.read_text().split() if path.exists() else []

    def jobs(self) -> list[int]:
        """Return the ids of living agents of this machine."""
        return self._processes("python3", "agent.pyz")

    def starting(self) -> bool:
        """Return whether a start of the job is under way: it waits for nothing but its turn to run."""
        return not self.starts() or len(self._processes("flock", "job.lock")) > 1

    def _processes(self, program: str, file: str) -> list[int]:
        found, wanted = [], str(self.root / file).encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if Path(words[0].decode()).name == program and wanted in words:
                    found.append(int(entry.name))
        return found

    def until(self, wanted: Any, what: str) -> None:
        """Wait until *wanted* is true; the machine is made of other processes."""
        until(wanted, what, TIMEOUT, 0.01)

    def stop(self) -> None:
        """End the server, the proxy and the job."""
        for gate in GATES:
            self.let_go(gate)
        self.loop.run(self.proxy.close())
        self.loop.run(self._server.stop())
        for pid in self.jobs():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _serve(self, key_name: str) -> SshServer:
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        host_key.write_private_key(str(self._folder / key_name))
        self.host_key = host_key.export_public_key().decode().strip()
        environment = {
            "PATH": f"{self._folder / 'tools'}:{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "TPUCTL_ROOT": str(self.root),
            "GATES": str(self.gates),
        }
        config = GuestConfig(
            "process", "m", "m", self._address, self._port, 0, 60.0, str(self._folder), str(self._folder),
            environment,
        )  # fmt: skip
        server = SshServer(config)
        server.accounts = {getuser(): (self.key.public,)}
        self.loop.run(server.start(self._folder / key_name))
        return server

    def _furnish(self) -> None:
        """Make what a booted machine has: the scripts, and an older tree."""
        scripts = machine_scripts(a_job_spec(), a_target())
        for name in ("gates", "tools"):
            (self._folder / name).mkdir(parents=True)
        old = self.root / "bundle" / "old"
        for place in (old, self.root / "state", self.root / "log"):
            place.mkdir(parents=True)
        (old / "main.py").write_text("old")
        (self.root / "current").symlink_to("bundle/old")
        (self.root / "job.env").write_text(scripts.job_env)
        for path, text in (
            (self._folder / "tools" / "gate", GATE), (self._folder / "tools" / "mv", MV),
            (self.root / "start-job", START), (self.root / "start-job.real", scripts.start_job),
            (self.root / "run-job", scripts.run_job),
        ):  # fmt: skip
            path.write_text(text)
            path.chmod(0o755)
        for gate in GATES:
            self.let_go(gate)


class DeliveryLab:
    """Make machines, and play one delivery on each, some side by side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = ServerLoop()
        self.key = ensure_key(folder / "keys")
        self._machines: list[ChaosMachine] = []

    def machine(self, root: Path | None = None) -> ChaosMachine:
        """Make a machine with an older tree."""
        made = ChaosMachine(self.loop, self.folder / f"m{len(self._machines)}", self.key, root)
        self._machines.append(made)
        return made

    def bundle(self, main: str, ballast: int) -> tuple[Path, str]:
        """Build a bundle of a small file and *ballast* bytes that do not compress."""
        source = self.folder / f"source-{main}"
        source.mkdir()
        (source / "main.py").write_text(main)
        (source / "ballast.bin").write_bytes(random.Random(main).randbytes(ballast))
        built = build(source, self.folder / "bundles")
        return built.path, built.digest

    def play(self, cases: Sequence[C], one: Callable[[ChaosMachine, C], T]) -> list[T]:
        """Return what *one* returns for every case; each has a machine of its own."""
        machines = [self.machine() for _ in cases]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(one, machines, cases))

    def close(self) -> None:
        """End all machines."""
        for machine in self._machines:
            machine.stop()
        self.loop.close()
