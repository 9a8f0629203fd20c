"""Whether a TPU that somebody else has made fits the deployment, and what taking it over changes."""

from collections.abc import Iterator, Sequence

from orchestrator.domain import names
from orchestrator.domain.observation import ForeignNode, NodeState
from orchestrator.domain.scopes import CLOUD_PLATFORM, STORAGE
from orchestrator.domain.spec import Spec

_STORAGE_SCOPES = (CLOUD_PLATFORM, STORAGE, "https://www.googleapis.com/auth/devstorage.full_control")


def is_adopted(spec: Spec, found: ForeignNode) -> bool:
    """Say whether the TPU carries the deployment's label already."""
    return found.node.labels.get(names.DEPLOYMENT_LABEL) == spec.name


def obstacles(spec: Spec, found: ForeignNode, others: Sequence[str]) -> Iterator[str]:
    """Yield what no line of the file can put right; *others* are the TPUs that the deployment has."""
    owner = found.node.labels.get(names.DEPLOYMENT_LABEL, "")
    if owner and owner != spec.name:
        yield f"it belongs to the deployment {owner}: run tpuctl down there, or leave it"
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
    wanted = (CLOUD_PLATFORM,) if spec.job.secrets else _STORAGE_SCOPES
    # An empty list means every API (docs/facts.md 1.3).
    if found.scopes and not set(found.scopes) & set(wanted):
        has = ", ".join(scope.rpartition("/")[2] for scope in found.scopes)
        needs = wanted[0] if spec.job.secrets else STORAGE
        yield f"its machines may not use the bucket: scopes {has}, needed {needs}; scopes cannot be changed"
    region = names.region_of(found.node.zone)
    if region != names.home_region(spec) and not spec.tpu.across_regions:
        yield f"it is in {region}, and the bucket in {names.home_region(spec)}: traffic is slow and billed"


def differing_lines(spec: Spec, found: ForeignNode, account: str) -> Iterator[str]:
    """
    Yield the lines that the deployment file must have for this TPU.

    A TPU with another shape than the file's would be replaced by the next `up`. *account* is what our
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
