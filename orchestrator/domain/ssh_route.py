"""The way to a machine over SSH, from where the controller runs."""

from enum import Enum


class Road(Enum):
    """Name a way: to the external or the internal address, through the VM, or through Identity-Aware Proxy."""

    OUTSIDE = "external address"
    INSIDE = "internal address"
    JUMP = "through the VM"
    IAP = "through Identity-Aware Proxy"


def road_to_vm(external_ip: str, *, inside: bool) -> Road:
    """Return the way to the VM; *inside* says that we run on a machine of the same network."""
    if inside:
        return Road.INSIDE
    return Road.OUTSIDE if external_ip else Road.IAP


def road_to_worker(external_ip: str, *, inside: bool, vm: bool) -> Road:
    """
    Return the way to a TPU worker; *vm* says that the deployment has a VM.

    Identity-Aware Proxy for TPU workers is documented in part only, so without a VM the internal address
    is tried: it answers where this computer's own network leads to it.
    """
    if inside or not (external_ip or vm):
        return Road.INSIDE
    return Road.OUTSIDE if external_ip else Road.JUMP
