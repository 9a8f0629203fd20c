"""The route to a machine over SSH, from where the controller runs."""

from enum import Enum


class RouteKind(Enum):
    """Name a kind of route: to the external or internal address, through the VM, or through Google's proxy."""

    OUTSIDE = "external address"
    INSIDE = "internal address"
    JUMP = "through the VM"
    IAP = "through Identity-Aware Proxy"


def route_to_vm(external_ip: str, *, inside: bool) -> RouteKind:
    """Return the route to the VM; *inside* says that we run on a machine of the same network."""
    if inside:
        return RouteKind.INSIDE
    return RouteKind.OUTSIDE if external_ip else RouteKind.IAP


def route_to_worker(external_ip: str, *, inside: bool, vm: bool) -> RouteKind:
    """
    Return the route to a TPU worker; *vm* says that the deployment has a VM.

    Identity-Aware Proxy for TPU workers is documented in part only, so without a VM the internal address
    is tried: it answers where this computer's own network leads to it.
    """
    if inside or not (external_ip or vm):
        return RouteKind.INSIDE
    return RouteKind.OUTSIDE if external_ip else RouteKind.JUMP
