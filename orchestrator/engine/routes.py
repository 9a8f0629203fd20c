"""Choose how each machine is reached over SSH: its address, its pinned host keys and the route."""

from enum import Enum

from orchestrator.domain.observation import Absent, Node, Present, Vm, VmState, Worker, World
from orchestrator.domain.ports import Cloud
from orchestrator.domain.remote import Host, Iap
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.errors import AuthError, RemoteError


def vm_host(cloud: Cloud, world: World) -> Host:
    """Return the VM with its pinned host keys. Raise RemoteError if the VM is not observed."""
    vm = _vm(world)
    route = route_to_vm(vm.external_ip, inside=cloud.inside)
    if route is RouteKind.IAP and vm.state is not VmState.RUNNING:
        raise RemoteError(f"the VM {vm.name} is {vm.state.value}", hint="run: tpuctl status")
    # Keys come from the cloud's API, never from the first contact, which an attacker could answer.
    keys = cloud.vms.host_keys(vm.name, vm.zone)
    address = vm.external_ip if route is RouteKind.OUTSIDE else vm.internal_ip
    iap = Iap(cloud.account.project, vm.zone, vm.name, cloud.relay) if route is RouteKind.IAP else None
    return Host(vm.name, address or vm.external_ip, keys, cloud.ssh_port, iap=iap)


def worker_keys(cloud: Cloud, node: Node, worker: int) -> tuple[str, ...]:
    """
    Return one worker's public host keys: from its guest attributes, or from its report if those are blocked.

    Only the machines' account and the bucket's editors can write reports. Raise NotFoundError while there are
    no keys, AuthError if the attributes are blocked and no report has them.
    """
    try:
        return cloud.nodes.host_keys(node.name, node.zone, worker)
    except AuthError:
        # Blocked by a policy of the organisation, or by a missing role (docs/facts.md 2.7).
        heartbeats = read_heartbeats(cloud.store, node.incarnation) if node.incarnation else Absent()
        reported = (
            [b.host_keys for b in heartbeats.value if b.worker == worker]
            if isinstance(heartbeats, Present)
            else []
        )
        if not any(reported):
            raise
        return reported[0]


def worker_host(cloud: Cloud, world: World, node: Node, worker: Worker, keys: tuple[str, ...]) -> Host:
    """Return one worker of a TPU with the given host keys. Raise RemoteError if the VM on its route is absent."""
    # An Unknown VM counts as present: an error about the VM helps more than a route that cannot work.
    vm = not isinstance(world.vm, Absent)
    route = route_to_worker(worker.external_ip, inside=cloud.inside, vm=vm)
    address = worker.external_ip if route is RouteKind.OUTSIDE else worker.internal_ip
    via = vm_host(cloud, world) if route is RouteKind.JUMP else None
    name = f"{node.name}-w{worker.index}"
    return Host(name, address or worker.external_ip, keys, cloud.ssh_port, via=via)


def _vm(world: World) -> Vm:
    if not isinstance(world.vm, Present):
        raise RemoteError("the VM is not listed", hint="run: tpuctl status")
    return world.vm.value


class RouteKind(Enum):
    """A kind of route: to the external or internal address, through the VM, or through Google's proxy."""

    OUTSIDE = "external address"
    INSIDE = "internal address"
    JUMP = "through the VM"
    IAP = "through Identity-Aware Proxy"


def route_to_vm(external_ip: str, *, inside: bool) -> RouteKind:
    """Return the route to the VM; *inside* says that we run in the same network."""
    if inside:
        return RouteKind.INSIDE
    return RouteKind.OUTSIDE if external_ip else RouteKind.IAP


def route_to_worker(external_ip: str, *, inside: bool, vm: bool) -> RouteKind:
    """
    Return the route to a TPU worker; *inside* says that we run in the same network, *vm* that there is a VM.

    Identity-Aware Proxy for TPU workers is documented only in part, so without a VM the internal address is
    tried; it works if this computer's network leads there.
    """
    if inside or not (external_ip or vm):
        return RouteKind.INSIDE
    return RouteKind.OUTSIDE if external_ip else RouteKind.JUMP
