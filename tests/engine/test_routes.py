"""Where machines are reached: address, pinned keys and the route, from what was observed."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.contract.bucket.object_names import HEARTBEAT
from orchestrator.domain.observation import Absent, Node, NodeState, Present, Unknown, Vm, VmState, Worker
from orchestrator.domain.ports import StoredObject
from orchestrator.domain.remote import Host, Iap
from orchestrator.engine.routes import vm_host, worker_host, worker_keys
from orchestrator.errors import AuthError, NotFoundError, RemoteError

WORKER = Worker(1, "10.0.0.3")
NODE = Node("demo-tpu-g1", "z-a", NodeState.READY, 1, workers=(Worker(0, "10.0.0.2"), WORKER))


def cloud(*, inside=False):
    """Return a cloud in which the VM has one pinned key."""
    vms = SimpleNamespace(host_keys=lambda name, zone: (f"key of {name}",))
    account = SimpleNamespace(project="p-1")
    return SimpleNamespace(vms=vms, account=account, ssh_port=22, inside=inside, relay="")


def world(external="", state=VmState.RUNNING):
    """Return a world with a VM."""
    return SimpleNamespace(vm=Present(Vm("demo-vm", "z-a", state, "10.0.0.9", external)))


def test_a_private_worker_is_reached_through_a_private_vm():
    """Each machine on the way has its own pins."""
    iap = Iap("p-1", "z-a", "demo-vm")
    vm = Host("demo-vm", "10.0.0.9", ("key of demo-vm",), iap=iap)
    assert worker_host(cloud(), world(), NODE, WORKER, ("its key",)) == Host(
        "demo-tpu-g1-w1", "10.0.0.3", ("its key",), via=vm
    )


def test_a_private_worker_is_reached_through_a_vm_with_an_address():
    """Then no gcloud is needed."""
    found = worker_host(cloud(), world("203.0.113.9"), NODE, WORKER, ())
    assert found.via == Host("demo-vm", "203.0.113.9", ("key of demo-vm",))


def test_inside_the_network_every_machine_is_reached_straight():
    """The loop on the VM needs no other way than its network."""
    here = cloud(inside=True)
    assert vm_host(here, world("203.0.113.9")) == Host("demo-vm", "10.0.0.9", ("key of demo-vm",))
    assert worker_host(here, world(), NODE, Worker(0, "10.0.0.2", "203.0.113.2"), ()).address == "10.0.0.2"


def test_without_a_vm_the_internal_address_is_tried():
    """A computer in the same network may reach it."""
    found = worker_host(cloud(), SimpleNamespace(vm=Absent()), NODE, WORKER, ())
    assert (found.address, found.via) == ("10.0.0.3", None)


@pytest.mark.parametrize(
    ("there", "words"),
    [(world(state=VmState.TERMINATED), "is TERMINATED"), (SimpleNamespace(vm=Unknown("x")), "not listed")],
)
def test_a_vm_that_is_away_is_an_error_that_passes(there, words):
    """Nobody may take the internal address for one that this computer reaches."""
    with pytest.raises(RemoteError, match=words):
        worker_host(cloud(), there, NODE, WORKER, ())


def closed(*heartbeats):
    """Return a cloud whose guest attributes a constraint closes, and whose bucket holds *heartbeats*."""

    def refuse(name, zone, worker):
        raise AuthError("Constraint constraints/compute.disableGuestAttributesAccess violated")

    objects = [
        StoredObject(f"{HEARTBEAT}1/{heartbeat['worker']}", 10, 1, 5.0, json.dumps(heartbeat).encode())
        for heartbeat in heartbeats
    ]
    store = SimpleNamespace(
        list=lambda prefix, most=0: [replace(one, data=b"") for one in objects],
        read=lambda name, offset=0, limit=0: next(one for one in objects if one.name == name),
    )
    return SimpleNamespace(nodes=SimpleNamespace(host_keys=refuse), store=store)


def a_heartbeat(worker, **more):
    """Return the report of one worker of two."""
    return {"incarnation": 1, "worker": worker, "workers": 2, "phase": "run", **more}


def test_where_guest_attributes_are_closed_the_keys_come_from_the_workers_own_heartbeat():
    """The second way is taken only when the first is refused, and only for that worker."""
    reported = closed(
        a_heartbeat(0, host_keys=["ssh-ed25519 AAAA0"]), a_heartbeat(1, host_keys=["ssh-ed25519 AAAA1"])
    )
    assert worker_keys(reported, NODE, 1) == ("ssh-ed25519 AAAA1",)
    with pytest.raises(AuthError, match="disableGuestAttributesAccess"):
        worker_keys(closed(a_heartbeat(0, host_keys=["ssh-ed25519 AAAA0"]), a_heartbeat(1)), NODE, 1)


def test_keys_that_are_not_published_yet_are_waited_for():
    """An open interface without keys is no reason to believe another one."""
    reported = closed(a_heartbeat(1, host_keys=["ssh-ed25519 AAAA1"]))

    def none_yet(name, zone, worker):
        raise NotFoundError("none published yet")

    reported.nodes.host_keys = none_yet
    with pytest.raises(NotFoundError):
        worker_keys(reported, NODE, 1)
