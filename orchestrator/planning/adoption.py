"""Check whether a TPU, VM or bucket that tpuctl did not create fits the deployment, and what adoption changes."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain import names
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, STORAGE, vm_scopes
from orchestrator.domain.observation import ForeignBucket, ForeignNode, ForeignVm, NodeState, VmState
from orchestrator.domain.spec import Spec

_STORAGE_SCOPES = (CLOUD_PLATFORM, STORAGE, "https://www.googleapis.com/auth/devstorage.full_control")


def is_adopted(spec: Spec, labels: Mapping[str, str]) -> bool:
    """Return whether a resource with these labels belongs to the deployment; a pending adoption does not count."""
    ours = labels.get(names.DEPLOYMENT_LABEL) == spec.name
    return ours and labels.get(names.ADOPTED_LABEL) != names.ADOPTING


def obstacles(spec: Spec, found: ForeignNode, others: Sequence[str]) -> Iterator[str]:
    """Yield reasons against adopting a TPU that no edit of the file removes; *others* are the deployment's TPUs."""
    owner = found.node.labels.get(names.DEPLOYMENT_LABEL, "")
    if owner and owner != spec.name:
        yield f"it belongs to the deployment {owner}: run `tpuctl down` there, or leave it"
    if found.in_queue:
        yield f"it belongs to the queued resource {found.in_queue}, which would delete it or bring it back"
    if found.node.state is not NodeState.READY:
        yield f"it is {found.node.state.name}, and only a TPU that is READY can be adopted"
    if others:
        yield f"the deployment has a TPU already: {', '.join(others)}"
    if spec.tpu.request != "node":
        yield f"the deployment asks for its TPUs through the queue (tpu.request: {spec.tpu.request})"
    if spec.os_login:
        yield "its machines are reached by gcloud only (os_login), and the agent comes over SSH"
    if spec.job.run_on == "vm":
        yield "the job runs on the VM (job.run_on: vm)"
    wide = bool(spec.job.secrets) or spec.tpu.scope == "cloud-platform"
    wanted = (CLOUD_PLATFORM,) if wide else _STORAGE_SCOPES
    # An empty list means every API (docs/facts.md 1.3).
    if found.scopes and not set(found.scopes) & set(wanted):
        has = ", ".join(scope.rpartition("/")[2] for scope in found.scopes)
        needs = wanted[0] if wide else STORAGE
        yield f"its machines may not use the bucket: scopes {has}, needed {needs}; scopes cannot be changed"
    region = names.region_of(found.node.zone)
    if region != names.home_region(spec) and not spec.tpu.across_regions:
        yield f"it is in {region}, and the bucket in {names.home_region(spec)}: traffic is slow and billed"


def vm_obstacles(spec: Spec, found: ForeignVm, others: Sequence[str], at_down: str) -> Iterator[str]:
    """
    Yield the reasons against adopting a VM; *others* are the deployment's VMs.

    *at_down* is what `down` is to do with it.
    """
    vm, home = found.vm, names.home_region(spec)
    owner = vm.labels.get(names.DEPLOYMENT_LABEL, "")
    if owner and owner != spec.name:
        yield f"it belongs to the deployment {owner}: run `tpuctl down` there, or leave it"
    if vm.state is not VmState.RUNNING:
        start = f"gcloud compute instances start {vm.name} --zone {vm.zone}"
        yield f"it is {vm.state.value}, and only a VM that runs can be adopted: {start}"
    if others:
        yield f"the deployment has a VM already: {', '.join(others)}"
    if spec.os_login or found.os_login:
        yield "people log in to it by OS Login, so an SSH key in its metadata is ignored"
    wide = CLOUD_PLATFORM in vm_scopes(spec)
    if not set(vm.scopes) & set((CLOUD_PLATFORM,) if wide else _STORAGE_SCOPES):
        has = ", ".join(scope.rpartition("/")[2] for scope in vm.scopes) or "none"
        needs = (CLOUD_PLATFORM if wide else STORAGE).rpartition("/")[2]
        gcloud = "gcloud compute instances"
        one = f"{vm.name} --zone {vm.zone}"
        yield (
            f"its scopes are {has}, needed is {needs}: {gcloud} stop {one}, then "
            f"{gcloud} set-service-account {one} --scopes={','.join(vm_scopes(spec))}, then {gcloud} start {one}"
        )
    if names.region_of(vm.zone) != home:
        yield f"it is in {names.region_of(vm.zone)}, and the bucket in {home}: traffic is slow and billed"
    if at_down == "delete" and found.protected:
        yield "it is protected against deletion, so it can only be kept: --at-down keep"
    elif at_down == "delete" and found.lasting:
        disks = ", ".join(found.lasting)
        yield f"its disk {disks} would outlive it, and be billed, so it can only be kept: --at-down keep"


def vm_lines(spec: Spec, found: ForeignVm, account: str) -> Iterator[str]:
    """Yield the lines that the deployment file must have for this VM; *account* is the one our VM would run as."""
    vm, wanted = found.vm, spec.vm
    if wanted == "none":
        yield f"vm.name: {vm.name} (and not vm: none)"
        return
    if vm.name != wanted.name:
        yield f"vm.name: {vm.name}"
    if vm.zone != names.vm_zone(spec):
        yield f"vm.zone: {vm.zone}"
    if vm.machine_type != wanted.machine_type:
        yield f"vm.machine_type: {vm.machine_type}"
    if vm.disk_gb != wanted.disk_gb:
        yield f"vm.disk_gb: {vm.disk_gb}"
    if vm.spot != wanted.spot:
        yield f"vm.spot: {str(vm.spot).lower()}"
    if bool(vm.external_ip) != wanted.external_ip:
        yield f"vm.external_ip: {str(bool(vm.external_ip)).lower()}"
    if found.network and found.network != spec.network.rpartition("/")[2]:
        yield f"network: {found.network}"
    if found.account and found.account != account:
        yield f"vm.service_account: {found.account}"


def bucket_obstacles(spec: Spec, found: ForeignBucket, earlier: str, at_down: str) -> Iterator[str]:
    """
    Yield the reasons against adopting a bucket; *earlier* is the deployment's bucket now, or empty.

    *at_down* is what `down --delete-data` is to do with it.
    """
    bucket, home = found.bucket, names.home_region(spec)
    owner = bucket.labels.get(names.DEPLOYMENT_LABEL, "")
    if owner and owner != spec.name:
        yield f"it belongs to the deployment {owner}: run `tpuctl down --delete-data` there, or leave it"
    if not found.own_project:
        yield "it is another project's: with bucket.adopt: true in the file nothing of it is ever changed"
    if earlier and earlier != bucket.name:
        yield f"the deployment has the bucket {earlier}, and its checkpoints are there"
    if bucket.location != home:
        yield f"it is in {bucket.location}, and the TPU in {home}: traffic is slow and billed"
    if at_down == "delete" and found.objects:
        yield f"it is not empty ({found.objects[0]}), so it can only be kept: --at-down keep"
    yield from _unfit_settings(spec, found)


def _unfit_settings(spec: Spec, found: ForeignBucket) -> Iterator[str]:
    bucket, soft = found.bucket, found.bucket.soft_delete_seconds
    change = f"gcloud storage buckets update gs://{bucket.name}"
    unfit = {
        f"its class is {found.storage_class}, which bills a replaced checkpoint for its shortest time":
            found.storage_class != "STANDARD",
        f"nothing in it can be replaced or deleted for {found.retention} s (its retention policy)":
            found.retention > 0,
        f"new objects in it are held: {change} --no-default-event-based-hold": found.held,
        "a lifecycle rule of it deletes objects, so it could delete checkpoints": found.deletes,
        f"it keeps and bills each replaced object: {change} --no-versioning": found.versioning,
        f"the machines would have to pay for each call: {change} --no-requester-pays": found.requester_pays,
        f"its objects have rights of their own: {change} --uniform-bucket-level-access":
            not bucket.uniform_access,
        "it is public, and so would be your code and your model": found.public,
        f"it keeps deleted objects for {soft} s: leave bucket.soft_delete out of the file":
            spec.bucket.soft_delete is not None and int(spec.bucket.soft_delete) != soft,
    }  # fmt: skip
    yield from (text for text, wrong in unfit.items() if wrong)


def differing_lines(spec: Spec, found: ForeignNode, account: str) -> Iterator[str]:
    """
    Yield the lines that the deployment file must have for this TPU.

    A TPU of another shape than the file's would be replaced by the next `up`. *account* is the one our
    machines run as.
    """
    tpu, zone = spec.tpu, found.node.zone
    if found.type != tpu.type:
        yield f"tpu.type: {found.type}"
    if zone not in tpu.zones:
        yield f"tpu.zones: [{', '.join((zone, *tpu.zones))}]"
    if found.runtime != tpu.runtime:
        yield f"tpu.runtime: {found.runtime}"
    if found.node.spot != tpu.spot:
        yield f"tpu.spot: {str(found.node.spot).lower()}"
    if found.external_ip != tpu.external_ip:
        yield f"tpu.external_ip: {str(found.external_ip).lower()}"
    if found.network and found.network != spec.network.rpartition("/")[2]:
        yield f"network: {found.network}"
    if found.account and found.account != account:
        yield f"service_account: {found.account}"
