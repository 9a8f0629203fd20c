"""Derive names and labels of resources, so that a resource is found again without a record."""

import hashlib
import re
from collections.abc import Mapping

from orchestrator.contract.bucket.object_names import NODES
from orchestrator.domain.spec import Spec

# Written on billed resources: after a rename of these labels, running machines would not be found any more.
DEPLOYMENT_LABEL = "tpuctl-deployment"
INCARNATION_LABEL = "tpuctl-incarnation"
ROLE_LABEL = "tpuctl-role"
ROUND_LABEL = "tpuctl-round"
ADOPTED_LABEL = "tpuctl-adopted"
"""On adopted resources: what `down` does with them (see AT_DOWN); `yes` means that it asks each time."""
AT_DOWN = ("keep", "delete")
ADOPTING = "pending"
"""Value of that label during the adoption of a VM: the VM is found by its label, and not used yet."""
LABELS = (DEPLOYMENT_LABEL, ROLE_LABEL, INCARNATION_LABEL, ADOPTED_LABEL)
"""Labels that are removed from a resource that is given back."""
SSH_USER = "tpuctl"


def region_of(zone: str) -> str:
    """Return the region of a zone, AI zones such as `us-central1-ai1a` included."""
    return zone.rsplit("-", 1)[0]


def home_region(spec: Spec) -> str:
    """Return the bucket's region: the one in the file, or that of the first zone."""
    return (spec.bucket.location or region_of(spec.tpu.zones[0])).lower()


def regions(spec: Spec) -> tuple[str, ...]:
    """Return the regions of the TPU's zones, the first zone's first."""
    return tuple(dict.fromkeys(region_of(zone) for zone in spec.tpu.zones))


def node_name(spec: Spec, incarnation: int) -> str:
    """Return the TPU node's name, unique for each incarnation, so that a create needs no request id."""
    # Parsed by `incarnation_of`, also for machines of earlier versions.
    return f"{spec.name}-tpu-g{incarnation}"


def vm_name(spec: Spec) -> str:
    """Return the VM's name, which stays the same, like its disk."""
    return (spec.vm.name if spec.vm != "none" else None) or f"{spec.name}-vm"


def takes_vm(spec: Spec) -> bool:
    """Return whether the user provides the VM: tpuctl never creates it, and deletes it only on explicit request."""
    return spec.vm != "none" and spec.vm.name is not None


def vm_zone(spec: Spec) -> str:
    """Return the VM's zone from the file, else the first zone of the TPU."""
    return (spec.vm.zone if spec.vm != "none" else None) or spec.tpu.zones[0]


def bucket_name(spec: Spec, project: str) -> str:
    """Return the bucket's name from the file, or one with a digest, because bucket names are global."""
    # Never change this: another digest would create a new, empty bucket beside the one with the checkpoints.
    digest = hashlib.sha256(f"{project}/{spec.name}".encode()).hexdigest()[:10]
    return spec.bucket.name or f"tpuctl-{spec.name}-{digest}"


def prefix_of(spec: Spec) -> str:
    """Return the prefix of the names of all the deployment's objects: empty, or a folder of a shared bucket."""
    return f"{spec.bucket.prefix}/" if spec.bucket.prefix else ""


def capacity_prefix_of(spec: Spec) -> str:
    """Return the folder of the capacity history, which all nodes of a fleet share."""
    prefix = prefix_of(spec)
    return "" if prefix.startswith(NODES) else prefix


def labels(spec: Spec, role: str, incarnation: int | None = None, race_round: int = 0) -> dict[str, str]:
    """Return the labels that mark a resource as ours; *race_round* is that which a TPU belongs to, 0 for none."""
    marks = {DEPLOYMENT_LABEL: spec.name, ROLE_LABEL: role}
    if race_round:
        marks[ROUND_LABEL] = str(race_round)
    return marks if incarnation is None else {**marks, INCARNATION_LABEL: str(incarnation)}


def round_of(resource_labels: Mapping[str, str]) -> int:
    """Return the round that a TPU was created for, 0 for none."""
    label = resource_labels.get(ROUND_LABEL, "")
    return int(label) if label.isdigit() else 0


def incarnation_of(name: str, resource_labels: dict[str, str]) -> int | None:
    """Return a node's incarnation from its label, else from its name, else None."""
    label = resource_labels.get(INCARNATION_LABEL, "")
    match = re.search(r"-tpu-g(\d+)$", name)
    if label.isdigit():
        return int(label)
    return int(match[1]) if match else None


def deployment_of(name: str) -> str:
    """Return the deployment of a TPU that `node_name` has named; of any other TPU its own name."""
    return re.sub(r"-tpu-g\d+$", "", name)


def is_given_back(resource_labels: Mapping[str, str]) -> bool:
    """Return whether the labels are those of an adopted resource that `down` gives back by default."""
    return resource_labels.get(ADOPTED_LABEL, "delete") != "delete"
