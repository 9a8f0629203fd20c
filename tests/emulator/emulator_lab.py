"""A local cloud without machines on a virtual clock, and the bodies its tests send."""

import json
from dataclasses import dataclass, field
from typing import Any

from orchestrator.clock import Clock, VirtualClock
from orchestrator.emulator.http.compute import compute_routes
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request, Router
from orchestrator.emulator.http.tpu import tpu_routes
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values.machine import NoMachines

ZONE = "europe-west4-b"
PROJECT = "local-project"
NODES = f"/v2/projects/{PROJECT}/locations/{ZONE}/nodes"
VMS = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances"
UUID = "11111111-2222-4333-8444-555555555555"


@dataclass
class EmulatorLab:
    """Hold a cloud and speak HTTP to it without a listener."""

    cloud: LocalCloud
    router: Router
    clock: Any
    machines: NoMachines = field(default_factory=NoMachines)

    def call(self, method: str, target: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the decoded answer."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = dispatch(self.router, self.cloud, Request.parse(method, target, {}, data))
        return answer.status, json.loads(answer.body)

    def ok(self, method: str, target: str, body: object = None) -> Any:
        """Return the answer of a call that must succeed."""
        status, answer = self.call(method, target, body)
        assert status == 200, answer
        return answer

    def observe(self, witness: Any, method: str, target: str) -> Any:
        """Return the answer of a call that *witness*, of the tests of the contract, holds against the schema."""
        request = Request.parse(method, target, {}, b"")
        return json.loads(witness.observe(request, dispatch(self.router, self.cloud, request)).body)

    def after(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.cloud.tick()

    def node(self, name: str = "n1", **fields: object) -> Any:
        """Create a node and wait until it is READY."""
        self.ok("POST", f"{NODES}?nodeId={name}", node_body(**fields))
        self.after(1.5)
        return self.ok("GET", f"{NODES}/{name}")

    def vm(self, name: str = "v1", **fields: object) -> Any:
        """Insert a VM and wait until it is RUNNING."""
        self.ok("POST", VMS, vm_body(name, **fields))
        self.after(1.0)
        return self.ok("GET", f"{VMS}/{name}")

    def operation(self, answer: Any) -> Any:
        """Return the present state of the operation that *answer* started."""
        if "selfLink" in answer:
            return self.ok("GET", answer["selfLink"].removeprefix("https://www.googleapis.com"))
        return self.ok("GET", f"/v2/{answer['name']}")


def a_lab(clock: Clock | None = None, **settings: Any) -> EmulatorLab:
    """Return a lab with scaled latencies unless *settings* say otherwise."""
    machines, time = NoMachines(), clock or VirtualClock()
    cloud = LocalCloud(
        time,
        machines,
        LocalCloudSettings(**{"latency": PROFILES["scaled"], "fresh_project": False, **settings}),
    )
    router = Router()
    tpu_routes(router, cloud)
    compute_routes(router, cloud)
    return EmulatorLab(cloud, router, time, machines)


def node_body(**fields: object) -> dict[str, object]:
    """Return the body of a single-host node."""
    return {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite", **fields}


def vm_body(name: str = "v1", **fields: object) -> dict[str, object]:
    """Return the body of a small VM with a Debian boot disk of 20 GiB."""
    image = "projects/debian-cloud/global/images/family/debian-13"
    disk = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image, "diskSizeGb": "20"}}
    return {"name": name, "machineType": f"zones/{ZONE}/machineTypes/e2-small", "disks": [disk], **fields}


SPOT_NODE = {"schedulingConfig": {"spot": True}}
SPOT_VM = {"scheduling": {"provisioningModel": "SPOT"}}
