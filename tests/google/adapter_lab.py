"""What the tests of the adapters share: a local cloud on a virtual clock, and a server with canned answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from orchestrator.clock import VirtualClock
from orchestrator.domain.ports import NewBucket, NewNode, NewVm
from orchestrator.emulator.client import BASE, InProcess
from orchestrator.emulator.http.router import Router
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.values.machine import Machine
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.objects import GcsStore
from orchestrator.google.vms import ComputeVms

PROJECT = "local-project"
LABEL = "tpuctl-deployment"
ZONE = "europe-west4-b"
OTHER_ZONE = "us-central1-a"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
ACCOUNT = "123456789012-compute@developer.gserviceaccount.com"


@dataclass
class AdapterLab:
    """A local cloud and the adapters over it."""

    clock: VirtualClock
    local: LocalCloud
    storage: Storage
    clients: Clients
    router: Router

    @property
    def nodes(self) -> TpuNodes:
        return TpuNodes(self.clients)

    @property
    def buckets(self) -> GcsBuckets:
        return GcsBuckets(self.clients)

    @property
    def machines(self) -> list[Machine]:
        self.local.tick()
        return self.local.machines()

    def store(self, bucket: str = "demo-bucket") -> GcsStore:
        return GcsStore(self.clients, bucket)


def a_lab(**settings: Any) -> AdapterLab:
    """Return a local cloud that is mounted into the sessions of the clients."""
    clock = VirtualClock()
    chosen = LocalCloudSettings(**{"fresh_project": False, **settings})
    inside = InProcess(clock, chosen, taken=["somebody-elses"])
    clients = Clients(CloudSettings(PROJECT, BASE, read_retry=0, adapter=inside.adapter()))
    return AdapterLab(clock, inside.cloud, inside.storage, clients, inside.router)


def vms_of(lab: AdapterLab) -> ComputeVms:
    """Return the VM adapter; one object for a test, because it remembers request ids."""
    return ComputeVms(lab.clients)


def a_node(**changes: Any) -> NewNode:
    """Describe a new spot v5litepod-8."""
    values: dict[str, Any] = {
        "name": "demo-tpu-g3",
        "zone": ZONE,
        "type": "v5litepod-8",
        "runtime": "v2-alpha-tpuv5-lite",
        "spot": True,
        "external_ip": True,
        "labels": {LABEL: "demo", "tpuctl-incarnation": "3"},
        "metadata": {"startup-script": "#!/bin/bash\ntrue"},
        "service_account": ACCOUNT,
        "scopes": SCOPES,
    }
    return NewNode(**{**values, **changes})


def a_vm(**changes: Any) -> NewVm:
    """Describe a new small standard VM."""
    values: dict[str, Any] = {
        "name": "demo-vm",
        "zone": ZONE,
        "machine_type": "e2-small",
        "disk_gb": 50,
        "spot": False,
        "labels": {LABEL: "demo"},
        "metadata": {"startup-script": "#!/bin/bash\ntrue"},
        "service_account": ACCOUNT,
        "scopes": SCOPES,
        "ttl": 7 * 86400.0,
    }
    return NewVm(**{**values, **changes})


def a_bucket(**changes: Any) -> NewBucket:
    """Describe a new bucket in the TPU's region."""
    values: dict[str, Any] = {
        "name": "demo-bucket",
        "location": "europe-west4",
        "labels": {LABEL: "demo"},
        "writer": ACCOUNT,
    }
    return NewBucket(**{**values, **changes})


@dataclass
class Received:
    """One request that the canned server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Canned:
    """A server of canned answers, and what it was asked."""

    base: str = ""
    requests: list[Received] = field(default_factory=list)

    def clients(self, **settings: Any) -> Clients:
        return Clients(
            CloudSettings(PROJECT, self.base, **{"read_retry": 0, "call_timeout": 5.0, **settings})
        )


Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@contextmanager
def canned(answer: Callable[[Received], Answer]) -> Iterator[Canned]:
    """
    Serve *answer* (status, body and, if need be, headers) on a free loopback port.

    A body that is not bytes is sent as JSON; None hangs up.
    """
    state = Canned()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = Received(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            state.requests.append(request)
            status, content, *more = answer(request)
            if content is None:
                self.close_connection = True
                return
            is_json = not isinstance(content, bytes)
            data = json.dumps(content).encode() if is_json else content
            self.send_response(status)
            self.send_header("content-type", "application/json" if is_json else "text/html")
            self.send_header("content-length", str(len(data)))
            for key, value in (more[0] if more else {}).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
