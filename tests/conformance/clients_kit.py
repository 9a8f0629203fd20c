"""The official Google clients, pointed at a local cloud over HTTP and in-process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from google.auth.credentials import AnonymousCredentials

from orchestrator.clock import SystemClock, VirtualClock
from orchestrator.emulator.client import BASE, CloudAdapter
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.state.cloud_settings import Latencies
from tests.conformance.discovery import Witness
from tests.emulator.emulator_lab import EmulatorLab, a_lab
from tests.emulator.http_fixture import serve

QUICK = Latencies(0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.05, 0.1, 0.2)
KINDS = ("http", "in-process")


class Late:
    """
    Stand for a module that is imported when something of it is used.

    Whoever only collects the tests need not wait for two seconds.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "pytestmark":  # pytest asks everything that it collects for these
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


compute_v1 = Late("google.cloud.compute_v1")
tpu_v2 = Late("google.cloud.tpu_v2")


@dataclass
class CloudClients:
    """Hold the clients and the lab behind them."""

    lab: EmulatorLab
    tpu: Any
    instances: Any
    operations: Any
    zones: Any
    disks: Any
    firewalls: Any
    global_operations: Any

    def finish(self, zone: str, operation: Any) -> Any:
        """Wait for a Compute operation by its own client and return its last state."""
        request = {"project": "local-project", "zone": zone, "operation": operation.name}
        done = compute_v1.Operation.Status.DONE
        state = self.operations.wait(request)
        while state.status != done:
            state = self.operations.wait(request)
        return state

    def pause(self, seconds: float) -> None:
        """Let time pass, by jump or by waiting."""
        self.lab.clock.wait(seconds)
        self.lab.cloud.tick()


@contextmanager
def open_clients(kind: str, **settings: Any) -> Iterator[CloudClients]:
    """Yield clients on a fresh cloud; *kind* is one of KINDS."""
    clock = SystemClock() if kind == "http" else VirtualClock()
    lab = a_lab(clock, **{"latency": QUICK, **settings})
    if kind == "in-process":
        yield _clients(lab, BASE)
        return
    witness = Witness()
    with serve(
        lab.router, lambda request: witness.observe(request, dispatch(lab.router, lab.cloud, request))
    ) as url:
        yield _clients(lab, url)
    assert witness.faults == {}


def _clients(lab: EmulatorLab, url: str) -> CloudClients:
    options = {"credentials": AnonymousCredentials(), "client_options": {"api_endpoint": url}}
    kinds = ("Instances", "ZoneOperations", "Zones", "Disks", "Firewalls", "GlobalOperations")
    compute = [getattr(compute_v1, f"{name}Client")(**options) for name in kinds]
    tpu = tpu_v2.TpuClient(transport="rest", **options)
    if url == BASE:
        adapter = CloudAdapter(lab.router, lab.cloud)
        for client in (tpu, *compute):
            client.transport._session.mount(BASE, adapter)
        tpu.transport.operations_client._transport._session.mount(BASE, adapter)
    return CloudClients(lab, tpu, *compute)
