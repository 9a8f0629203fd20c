"""Disks that exist already and are attached to each TPU: never made, formatted or deleted by us."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.spec import Spec

WRITES, READS = "read-write", "read-only"


@dataclass(frozen=True)
class DataDisk:
    """Describe one disk of `tpu.disks`; *writable* says that the TPU has it for itself."""

    name: str
    writable: bool = False

    @property
    def mode(self) -> str:
        """Return the mode as the API names it (tpu v2 AttachedDisk.DiskMode)."""
        return "READ_WRITE" if self.writable else "READ_ONLY"


def data_disks(spec: Spec) -> tuple[DataDisk, ...]:
    """Return the disks in the order of the file, which is the order of the devices on the machine."""
    # The order must not change: devices are found by their number on the machine (docs/facts.md 1.5).
    parts = (text.partition(":") for text in spec.tpu.disks)
    return tuple(DataDisk(name, mode == WRITES) for name, _, mode in parts)


def disk_lines(spec: Spec) -> Iterator[str]:
    """Yield each disk as people read it."""
    for disk in data_disks(spec):
        yield f"{disk.name} ({WRITES if disk.writable else READS})"
