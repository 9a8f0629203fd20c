"""
Where machines are reached: address, pinned keys and the way, from what was seen of them.
"""

from types import SimpleNamespace

import pytest

from orchestrator.core.world import Absent, Node, NodeState, Present, Unknown, Vm, VmState, Worker
from orchestrator.engine.reach import vm_host, worker_host
from orchestrator.errors import RemoteError
from orchestrator.ports import Host, Iap

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
    [(world(state=VmState.TERMINATED), "is TERMINATED"), (SimpleNamespace(vm=Unknown("x")), "not in sight")],
)
def test_a_vm_that_is_away_is_an_error_that_passes(there, words):
    """Nobody may take the internal address for one that this computer reaches."""
    with pytest.raises(RemoteError, match=words):
        worker_host(cloud(), there, NODE, WORKER, ())
