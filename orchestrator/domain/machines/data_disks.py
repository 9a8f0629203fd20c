"""List the existing disks that are attached to each TPU; tpuctl never creates, formats or deletes them."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.spec import Spec

WRITES, READS = "read-write", "read-only"


@dataclass(frozen=True)
class DataDisk:
    """One disk of `tpu.disks`; *writable* says that only this TPU may use it."""

    name: str
    writable: bool = False

    @property
    def mode(self) -> str:
        """Return the mode as the API names it (tpu v2 AttachedDisk.DiskMode)."""
        return "READ_WRITE" if self.writable else "READ_ONLY"


def data_disks(spec: Spec) -> tuple[DataDisk, ...]:
    """Return the disks in the order of the file, which is the order of the devices on the machine."""
    # Keep the order: machines find the devices by number (docs/facts.md 1.5).
    parts = (text.partition(":") for text in spec.tpu.disks)
    return tuple(DataDisk(name, mode == WRITES) for name, _, mode in parts)


def disk_lines(spec: Spec) -> Iterator[str]:
    """Yield a line for each disk, for people."""
    for disk in data_disks(spec):
        yield f"{disk.name} ({WRITES if disk.writable else READS})"
