"""The look at a TPU's data disks before it is asked for: what it cannot have is said before anything is paid."""

from orchestrator.domain.observation import Absent, Unknown
from orchestrator.domain.ports import NodeOrder, Vms
from orchestrator.errors import ConflictError, TransientError, UsageError

UNCHANGED = "no TPU was created"


def check_disks(vms: Vms, order: NodeOrder) -> None:
    """
    Raise when a disk of *order* is not in its zone (UsageError), or somebody has one that it wants to write.

    The second passes: the TPU before this one keeps its disks until it is gone.
    """
    for disk in order.disks:
        sight = vms.disk_users(disk.name, order.zone)
        if isinstance(sight, Absent):
            raise UsageError(
                f"there is no disk '{disk.name}' in {order.zone}",
                code="TPU-124",
                hint="See: gcloud compute disks list; then correct tpu.disks or tpu.zones. tpuctl makes none",
                changed=UNCHANGED,
            )
        if isinstance(sight, Unknown):
            if sight.denied:
                continue  # Then the create tells.
            raise TransientError(f"disk '{disk.name}' in {order.zone}: {sight.why}", changed=UNCHANGED)
        if disk.writable and sight.value:
            raise ConflictError(
                f"disk '{disk.name}' in {order.zone} is still used by {', '.join(sight.value)}",
                aborted=True,
                code="TPU-408",
                hint="tpuctl tries again by itself; it detaches nothing that is not its own.",
                changed=UNCHANGED,
            )
