"""Who waits for a change of a machine's metadata is woken by every change."""

import asyncio
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.machines_with_metadata import MachinesWithMetadata
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.identifiers import fingerprint
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values.machine import NoMachines
from tests.emulator.emulator_lab import ZONE, node_body, vm_body
from tests.kit.addresses import free_address, free_port
from tests.kit.waiting import until

HOUR = 3600  # a poll that nobody wakes lasts longer than the client waits for it
TIMEOUT = 90.0


class _Machines(NoMachines):
    """Boot nothing, and say where metadata is served."""

    metadata_ports = ()

    def __init__(self, port: int) -> None:
        super().__init__()
        self.settings = type("Settings", (), {"metadata_port": port})

    def holds(self, inode: int) -> bool:
        return False


@pytest.fixture
def cloud():
    """Return a cloud whose metadata servers listen, and the address and port of the first."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    address = free_address()
    port = free_port(address)
    machines = MachinesWithMetadata(_Machines(port), loop)
    base = address.rsplit(".", 2)[0] + ".0.0"
    settings = LocalCloudSettings(latency=PROFILES["scaled"], address_base=base, fresh_project=False)
    machines.cloud = LocalCloud(VirtualClock(), machines, settings)
    try:
        yield machines.cloud, port
    finally:
        asyncio.run_coroutine_threadsafe(machines.metadata.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _get(address: str, port: int, path: str) -> tuple[str, str]:
    request = urllib.request.Request(
        f"http://{address}:{port}/computeMetadata/v1/instance/{path}", headers={"Metadata-Flavor": "Google"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return answer.read().decode(), answer.headers["etag"]


def _vm(cloud: LocalCloud) -> None:
    cloud.compute.insert(ZONE, vm_body())


def _slice(cloud: LocalCloud) -> None:
    cloud.tpu.create(ZONE, "n1", node_body())


def _new_key_of_a_vm(cloud: LocalCloud) -> None:
    body = {"items": [{"key": "a", "value": "new"}], "fingerprint": fingerprint({})}
    cloud.changes.set_metadata(ZONE, "v1", body)


def _new_key_of_a_slice(cloud: LocalCloud) -> None:
    cloud.tpu.update(ZONE, "n1", {"metadata": {"a": "new"}}, "metadata")


def _maintenance(cloud: LocalCloud) -> None:
    cloud.changes.simulate_maintenance(ZONE, "v1")


def _guest(cloud: LocalCloud) -> None:
    cloud.put_guest_attribute(cloud.machines()[0].id, "hostkeys", "a", "new")


@pytest.mark.parametrize(
    ("make", "path", "change"),
    [
        (_vm, "attributes/?recursive=true", _new_key_of_a_vm),
        (_slice, "attributes/?recursive=true", _new_key_of_a_slice),
        (_vm, "maintenance-event?", _maintenance),
        (_vm, "guest-attributes/?recursive=true", _guest),
    ],
)
def test_a_change_wakes_who_waits(cloud, make, path, change):
    """The guest agent learns of a new SSH key at once, and not when its poll ends."""
    world, port = cloud
    make(world)
    world.clock.advance(5)
    world.tick()
    address = world.machines()[0].address
    before, etag = _get(address, port, path)
    query = f"&wait_for_change=true&last_etag={etag}&timeout_sec={HOUR}"
    waiting = world.kernel.machines.metadata._waiters
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(_get, address, port, path + query)
        until(lambda: any(waiting.values()), "the request waits", 90, 0.01)
        change(world)
        world.clock.advance(1)
        world.tick()
        assert poll.result()[0] != before
