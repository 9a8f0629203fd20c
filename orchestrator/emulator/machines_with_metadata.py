"""Connect machines and their metadata servers, as the model requests them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from orchestrator.emulator.http.metadata_server import MetadataServer
from orchestrator.emulator.http.metadata_tree import MachineView
from orchestrator.emulator.machines.local_machines import LocalMachines
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values.machine import Machine


class MachinesWithMetadata:
    """
    Implements Machines: a machine has its metadata address from before its boot until after its end.

    Call it from request threads, never from the loop's own.
    """

    def __init__(self, machines: LocalMachines, loop: asyncio.AbstractEventLoop) -> None:
        self._machines = machines
        self._loop = loop
        self._served: dict[str, str] = {}
        self.metadata = MetadataServer(self._lookup, machines.holds)
        self.cloud: LocalCloud | None = None

    def boot(self, machine: Machine) -> None:
        # Before the boot: the guest reads its attributes at once, and exits if they are not served.
        if machine.id not in self._served:
            ports = (self._machines.settings.metadata_port, *self._machines.metadata_ports)
            self._wait(self.metadata.start(machine.address, *ports))
            self._served[machine.id] = machine.address
        self._machines.boot(machine)

    def notice(self, machine_id: str) -> None:
        """Show `preempted` to the machine and press its power button."""
        # Metadata first, so that its long-polls see the preemption before the shutdown script runs.
        self.metadata.changed(machine_id)
        self._machines.notice(machine_id)

    def changed(self, machine_id: str) -> None:
        self.metadata.changed(machine_id)

    def stop(self, machine_id: str) -> None:
        # Served until the kill: a guest whose metadata server closes takes the daemon for dead.
        self._machines.stop(machine_id)
        self._unserve(machine_id)

    def remove(self, machine_id: str) -> None:
        self._machines.remove(machine_id)
        self._unserve(machine_id)

    def serial(self, machine_id: str) -> bytes:
        return self._machines.serial(machine_id)

    def _unserve(self, machine_id: str) -> None:
        address = self._served.pop(machine_id, None)
        if address is not None:
            self._wait(self.metadata.stop(address))

    def _lookup(self, address: str) -> MachineView | None:
        machine = self.cloud.machine_by_address(address) if self.cloud else None
        return MachineView(self.cloud, machine) if self.cloud and machine else None

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        # The time limit turns a deadlock (a call from the loop's own thread) into an error.
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)
