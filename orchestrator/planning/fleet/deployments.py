"""Map a fleet to ordinary deployments: one with bucket and VM, and one for each node, in a folder of its bucket."""

from dataclasses import dataclass, replace

from orchestrator.contract.bucket.object_names import JOBS, NODES, SLURM
from orchestrator.domain.spec import BucketSpec, CheckpointSpec, FleetSpec, JobSpec, Spec
from orchestrator.domain.text.units import Duration

OLDEST_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
"""Image of the fleet's VM, as old as the TPUs' (docs/fleet.md), so that programs built there run on all nodes."""
PORT = 6817
"""Slurm's default port for its controller; the nodes' ports follow it."""
FOR_EVER = Duration(10 * 365 * 86400)
RESTARTS = 1000
"""Failed attempts in a row after which a node's Slurm is given up; it fails also without Slurm's controller."""


@dataclass(frozen=True)
class SlurmController:
    """Say where a fleet's Slurm controller is, and which Slurm archive (`slurm-SHA256.tar.gz`) all machines run."""

    address: str
    port: int
    archive: str


def head_of(spec: Spec) -> Spec:
    """Return the deployment that has the fleet's bucket and VM."""
    assert spec.vm != "none"  # noqa: S101 (a rule of the file)
    return replace(spec, vm=replace(spec.vm, image=spec.vm.image or OLDEST_IMAGE))


def node_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of the nodes, used for their deployments and in Slurm."""
    return tuple(f"{spec.name}-{number:03d}" for number in range(1, nodes(spec) + 1))


def nodes(spec: Spec) -> int:
    """Return the number of nodes in the fleet; 0 for any other deployment."""
    return (spec.fleet or FleetSpec(0)).nodes


def node_spec(spec: Spec, name: str, bucket: str, slurm_controller: SlurmController) -> Spec:
    """Return the deployment of one node, whose job is Slurm's node daemon."""
    variables = {
        "FLEET_NAME": spec.name, "FLEET_NODE": name, "FLEET_NODES": str(nodes(spec)),
        # No address: a recreated VM has another one, so nodes read it from the bucket.
        "FLEET_PORT": str(slurm_controller.port), "FLEET_ENGINE": slurm_controller.archive,
    }  # fmt: skip
    job = JobSpec(
        # The data's name is part of the stored job: with another one `up` would restart each node.
        "bash ./slurm.sh node", data={"engine": f"gs://{bucket}/{SLURM.rstrip('/')}"}, env=variables,
        failures=RESTARTS, warm_start=False,
        # Tasks have checkpoints of their own; the node itself has nothing to resume.
        checkpoint=CheckpointSpec(format="outputs"),
    )  # fmt: skip
    return replace(
        spec, name=name, vm="none", fleet=None, job=job,
        bucket=BucketSpec(name=bucket, adopt=True, prefix=f"{NODES}{name}"),
        # The node's job prints nothing while tasks run, which must not count as a stall.
        watch=replace(spec.watch, stall=FOR_EVER, on_vm=False),
    )  # fmt: skip


def fleet_of(spec: Spec) -> str:
    """Return the name of the fleet that a deployment belongs to, empty if none."""
    if spec.fleet is not None:
        return spec.name
    return spec.name.rpartition("-")[0] if spec.bucket.prefix == f"{NODES}{spec.name}" else ""


def task_spec(spec: Spec, bucket: str, name: str, job: JobSpec) -> Spec:
    """Return the deployment that stands for the tasks of a job; each task has its own folder."""
    place = BucketSpec(name=bucket, adopt=True, prefix=f"{JOBS}{name}/tasks/0")
    return replace(spec, vm="none", fleet=None, job=job, bucket=place)
