"""Deterministic names and labels: what lets us find again what we made."""

import hashlib
import re
from collections.abc import Mapping

from orchestrator.contract.object_names import NODES
from orchestrator.domain.spec import Spec

# Written on what exists and is billed: a renamed label would leave those machines to nobody.
DEPLOYMENT_LABEL = "tpuctl-deployment"
INCARNATION_LABEL = "tpuctl-incarnation"
ROLE_LABEL = "tpuctl-role"
ROUND_LABEL = "tpuctl-round"
ADOPTED_LABEL = "tpuctl-adopted"
"""On what tpuctl has not made: what `down` does with it (see AT_DOWN), `yes` where it is asked each time."""
AT_DOWN = ("keep", "delete")
ADOPTING = "pending"
"""Value of that label while a VM is being taken over: found by its label, and used for nothing yet."""
LABELS = (DEPLOYMENT_LABEL, ROLE_LABEL, INCARNATION_LABEL, ADOPTED_LABEL)
"""What is taken off a thing that is given back."""
SSH_USER = "tpuctl"


def region_of(zone: str) -> str:
    """Return the region of a zone, AI zones such as `us-central1-ai1a` included."""
    return zone.rsplit("-", 1)[0]


def home_region(spec: Spec) -> str:
    """Return where the bucket lies: the region of the first zone, or what the file names."""
    return (spec.bucket.location or region_of(spec.tpu.zones[0])).lower()


def regions(spec: Spec) -> tuple[str, ...]:
    """Return the regions of the TPU's zones, the first zone's first."""
    return tuple(dict.fromkeys(region_of(zone) for zone in spec.tpu.zones))


def node_name(spec: Spec, incarnation: int) -> str:
    """Return the TPU node's name: one new name for each incarnation, so that create needs no request id."""
    # Read back by `incarnation_of`, also from machines of earlier versions.
    return f"{spec.name}-tpu-g{incarnation}"


def vm_name(spec: Spec) -> str:
    """Return the VM's name; a VM keeps its name and disk for the life of the deployment."""
    return (spec.vm.name if spec.vm != "none" else None) or f"{spec.name}-vm"


def takes_vm(spec: Spec) -> bool:
    """Say whether the VM is one that its owner has made: tpuctl makes none, and deletes it only when told."""
    return spec.vm != "none" and spec.vm.name is not None


def vm_zone(spec: Spec) -> str:
    """Return the zone that the file names for the VM, else the first one of the TPU."""
    return (spec.vm.zone if spec.vm != "none" else None) or spec.tpu.zones[0]


def bucket_name(spec: Spec, project: str) -> str:
    """Return the bucket's name; a digest of project and deployment keeps the global name ours."""
    # Never to be changed: another digest would make a new, empty bucket beside the one with the checkpoints.
    digest = hashlib.sha256(f"{project}/{spec.name}".encode()).hexdigest()[:10]
    return spec.bucket.name or f"tpuctl-{spec.name}-{digest}"


def prefix_of(spec: Spec) -> str:
    """Return what the names of all the deployment's objects begin with: empty, or a folder of a shared bucket."""
    return f"{spec.bucket.prefix}/" if spec.bucket.prefix else ""


def memory_prefix_of(spec: Spec) -> str:
    """Return the folder with the memory of zones: the nodes of a fleet share that of their bucket."""
    prefix = prefix_of(spec)
    return "" if prefix.startswith(NODES) else prefix


def labels(spec: Spec, role: str, incarnation: int | None = None, race: int = 0) -> dict[str, str]:
    """Return the labels that mark a resource as ours; *race* is the race that a TPU runs in, 0 for none."""
    marks = {DEPLOYMENT_LABEL: spec.name, ROLE_LABEL: role}
    if race:
        marks[ROUND_LABEL] = str(race)
    return marks if incarnation is None else {**marks, INCARNATION_LABEL: str(incarnation)}


def round_of(resource_labels: Mapping[str, str]) -> int:
    """Return the race that a TPU was made for, 0 for none."""
    label = resource_labels.get(ROUND_LABEL, "")
    return int(label) if label.isdigit() else 0


def incarnation_of(name: str, resource_labels: dict[str, str]) -> int | None:
    """Return the incarnation a node was made for: from its label, else from its name, else None."""
    label = resource_labels.get(INCARNATION_LABEL, "")
    match = re.search(r"-tpu-g(\d+)$", name)
    if label.isdigit():
        return int(label)
    return int(match[1]) if match else None


def is_given_back(resource_labels: Mapping[str, str]) -> bool:
    """Say whether the labels are those of an adopted thing that `down` gives back, unless it is told otherwise."""
    return resource_labels.get(ADOPTED_LABEL, "delete") != "delete"
