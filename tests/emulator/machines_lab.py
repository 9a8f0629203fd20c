"""A metadata server and machines for the tests of machines: real processes on loopback."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from orchestrator.emulator.http.metadata_server import MetadataServer
from orchestrator.emulator.http.metadata_tree import MachineView
from orchestrator.emulator.machines.local_machines import LocalMachines
from orchestrator.emulator.machines.machine_settings import MachineSettings
from orchestrator.emulator.machines.namespace import NamespaceMachines
from orchestrator.emulator.machines.process import ProcessMachines
from orchestrator.emulator.state.values.machine import Machine
from tests.kit.addresses import free_address, free_port
from tests.kit.waiting import until

KINDS: dict[str, Callable[[MachineSettings], LocalMachines]] = {
    "process": ProcessMachines,
    "namespace": NamespaceMachines,
}


class LabView:
    """Show a machine to the metadata server, as the model does."""

    def __init__(self, machine: Machine, **attributes: str) -> None:
        self.machine = machine
        self.attributes: dict[str, str] = {**machine.attributes, **attributes}
        self.project_attributes: dict[str, str] = {}
        self.preempted = False
        self.maintenance_event = "NONE"
        self.guest_attributes: dict[str, str] = {}

    def put_guest_attribute(self, namespace: str, key: str, value: str) -> None:
        """Store a guest attribute."""
        self.guest_attributes[f"{namespace}/{key}"] = value


def machine(address: str = "127.9.9.9", **changes: Any) -> Machine:
    """Return a machine that differs from a plain TPU worker by *changes*."""
    values: dict[str, Any] = {
        "id": f"tpu-europe-west4-b-trainer-{random.getrandbits(40)}-w0",
        "numeric_id": 4242,
        "name": "t1v-n-4242-w-0",
        "kind": "tpu",
        "zone": "europe-west4-b",
        "project": "demo",
        "project_number": 123,
        "address": address,
        "machine_type": "ct5lp-hightpu-8t",
        "service_account": "123-compute@developer.gserviceaccount.com",
        "scopes": ("https://www.googleapis.com/auth/cloud-platform",),
        "preemptible": True,
        **changes,
    }
    return Machine(**values)


class MachineLab:
    """One machine of one local cloud: its view, its machines, and a user with a key."""

    def __init__(self, machines: LocalMachines, view: LabView, server: MetadataServer) -> None:
        self.machines = machines
        self.view = view
        self.server = server
        self.machine = view.machine
        self.folder = machines.settings.folder(view.machine.id)
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.authorize("ada", self.key)

    def authorize(self, user: str, key: asyncssh.SSHKey) -> None:
        """Make *key* of *user* the only one in the ssh-keys attribute."""
        self.view.attributes["ssh-keys"] = f"{user}:{key.export_public_key().decode().strip()} test"
        self.server.changed(self.machine.id)

    def boot(self) -> None:
        """Boot the machine and wait for its host key."""
        self.view.guest_attributes.clear()
        self.machines.boot(self.machine)
        until(lambda: self.view.guest_attributes.get("hostkeys/ssh-ed25519"), "the machine's host key", 90)

    def known_hosts(self) -> asyncssh.SSHKnownHosts:
        """Return the pinned host key, as the guest attribute has it."""
        port = self.machines.settings.ssh_port
        key = self.view.guest_attributes["hostkeys/ssh-ed25519"]
        return asyncssh.import_known_hosts(f"[{self.machine.address}]:{port} ssh-ed25519 {key}\n")

    async def connect(
        self, user: str = "ada", key: asyncssh.SSHKey | None = None
    ) -> asyncssh.SSHClientConnection:
        """Log in with the pinned host key."""
        return await asyncssh.connect(
            self.machine.address, self.machines.settings.ssh_port, username=user, client_keys=[key or self.key],
            known_hosts=self.known_hosts(), config=None, agent_path=None, connect_timeout=60,
        )  # fmt: skip

    def run(self, command: str, user: str = "ada") -> asyncssh.SSHCompletedProcess:
        """Run one command over SSH."""

        async def session() -> asyncssh.SSHCompletedProcess:
            async with await self.connect(user) as connection:
                return await connection.run(command, timeout=90)

        return asyncio.run(session())

    def output(self, command: str) -> str:
        """Return what a command that succeeds prints."""
        result = self.run(command)
        assert result.exit_status == 0, result.stderr
        return str(result.stdout).strip()

    def serial(self) -> str:
        """Return the serial port's text."""
        return self.machines.serial(self.machine.id).decode()


@contextmanager
def lab(
    build: Callable[[MachineSettings], LocalMachines],
    root: Path,
    *,
    kind: str = "tpu",
    disk_bytes: int = 0,
    disks: tuple[str, ...] = (),
    sources: Mapping[str, str] | None = None,
    more_settings: Mapping[str, Any] | None = None,
    **attributes: str,
) -> Iterator[MachineLab]:
    """
    Serve the metadata of one machine that is not booted yet; everything is killed at the end.

    *more_settings* has further settings of the machines.
    """
    address = free_address()
    settings = MachineSettings(
        root=root / "machines",
        cloud_id=f"test{random.getrandbits(48):x}",
        endpoint="http://127.0.0.1:9",
        ssh_port=free_port(address),
        metadata_port=free_port(address),
        cron_minute_seconds=1.0,
        package_sources=sources or {},
        **(more_settings or {}),
    )
    settings.root.mkdir(parents=True)
    machines = build(settings)
    name = "t1v-n-4242-w-0" if kind == "tpu" else "controller"
    allowed = {"enable-guest-attributes": "TRUE", **attributes}
    view = LabView(machine(address, kind=kind, name=name, disk_bytes=disk_bytes, disks=disks), **allowed)
    with serving(
        lambda at: view if at == address else None, address, settings.metadata_port, *machines.metadata_ports
    ) as server:
        try:
            yield MachineLab(machines, view, server)
        finally:
            machines.reap_all(disks=True)


@contextmanager
def serving(
    lookup: Callable[[str], MachineView | None], address: str, *ports: int
) -> Iterator[MetadataServer]:
    """Run a metadata server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = MetadataServer(lookup)

    def call(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    async def settle() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        call(server.start(address, *ports))
        yield server
    finally:
        call(server.close())
        call(settle())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
