"""Report differences that `up` does not change although the file asks for it: a VM's disk may hold data."""

from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, vm_scopes
from orchestrator.domain.names import takes_vm, vm_name
from orchestrator.domain.observation import Absent, Present, Vm, VmState, World
from orchestrator.domain.spec import Spec


def drift_notes(spec: Spec, world: World) -> tuple[str, ...]:
    """Return a sentence, without a full stop, for each difference that `up` does not change."""
    if spec.vm == "none":
        return ()
    if takes_vm(spec) and isinstance(world.vm, Absent):
        name = vm_name(spec)
        text = f"the VM {name} is not part of the deployment, and tpuctl makes none in its place. To adopt it"
        return (f"{text}: tpuctl adopt --vm {name}",)
    differences = changed(spec, world.vm.value) if isinstance(world.vm, Present) else ()
    text = (
        f"the VM stays as it is: {'; '.join(differences)}. tpuctl does not replace a VM, since its disk "
        "may hold data that exists nowhere else. To have a new one: copy what you need, `tpuctl down`, `tpuctl up`"
    )
    return (text,) if differences else ()


def changed(spec: Spec, vm: Vm) -> tuple[str, ...]:
    """Return the differences between a VM and the one that *spec* asks for, in words."""
    wanted = spec.vm
    if wanted == "none":
        return ()
    pairs = (
        ("machine type", vm.machine_type, wanted.machine_type),
        ("disk", f"{vm.disk_gb} GB" if vm.disk_gb else "", f"{wanted.disk_gb} GB"),
        ("capacity", _capacity(vm.spot), _capacity(wanted.spot)),
        ("external address", _address(vm), "yes" if wanted.external_ip else "no"),
    )
    # A value that the API does not show is unknown, which is no difference.
    found = [f"{what} {has}, the file wants {want}" for what, has, want in pairs if has and has != want]
    if vm.scopes and CLOUD_PLATFORM in vm_scopes(spec) and CLOUD_PLATFORM not in vm.scopes:
        message = "watch.on_vm needs" if spec.watch.on_vm else "the job's secrets need"
        found.append(f"it was made without the scope cloud-platform, which {message}")
    return tuple(found)


def _address(vm: Vm) -> str:
    """Return whether a VM has an external address; empty if the VM does not run, because it shows none then."""
    if vm.state is not VmState.RUNNING:
        return ""
    return "yes" if vm.external_ip else "no"


def _capacity(spot: bool) -> str:
    return "spot" if spot else "standard"
