"""
Where each machine is reached over SSH: its address, its pinned host keys and the way that leads there.
"""

from orchestrator.core.road import Road, road_to_vm, road_to_worker
from orchestrator.core.world import Absent, Node, Present, Vm, VmState, Worker, World
from orchestrator.errors import RemoteError
from orchestrator.ports import Cloud, Host, Iap


def vm_host(cloud: Cloud, world: World) -> Host:
    """
    Return the VM with its pinned host keys. Raise RemoteError when it is not in sight.
    """
    vm = _vm(world)
    road = road_to_vm(vm.external_ip, inside=cloud.inside)
    if road is Road.IAP and vm.state is not VmState.RUNNING:
        raise RemoteError(f"the VM {vm.name} is {vm.state.value}", hint="run: tpuctl status")
    keys = cloud.vms.host_keys(vm.name, vm.zone)
    address = vm.external_ip if road is Road.OUTSIDE else vm.internal_ip
    iap = Iap(cloud.account.project, vm.zone, vm.name, cloud.relay) if road is Road.IAP else None
    return Host(vm.name, address or vm.external_ip, keys, cloud.ssh_port, iap=iap)


def worker_host(cloud: Cloud, world: World, node: Node, worker: Worker, keys: tuple[str, ...]) -> Host:
    """
    Return one worker of a TPU with the given host keys. Raise RemoteError when the VM on the way is away.
    """
    vm = not isinstance(world.vm, Absent)
    road = road_to_worker(worker.external_ip, inside=cloud.inside, vm=vm)
    address = worker.external_ip if road is Road.OUTSIDE else worker.internal_ip
    via = vm_host(cloud, world) if road is Road.JUMP else None
    name = f"{node.name}-w{worker.index}"
    return Host(name, address or worker.external_ip, keys, cloud.ssh_port, via=via)


def _vm(world: World) -> Vm:
    if not isinstance(world.vm, Present):
        raise RemoteError("the VM is not in sight", hint="run: tpuctl status")
    return world.vm.value
