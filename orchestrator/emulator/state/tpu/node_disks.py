"""
Model data disks of nodes: which exist, who has them, and what is refused.

Known: a disk is in the node's zone; one node at a time has it for writing, several for reading (the schema of
tpu v2, gcloud's help). Not known, chosen here: the texts (Compute Engine's), that refusals come on the call,
that a slice of several hosts cannot write, and that a preempted node keeps its disks until it is deleted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tables import Accelerator
from orchestrator.emulator.state.values.node import Node

WRITES = "READ_WRITE"
_PATH = re.compile(r"projects/([^/]+)/zones/([^/]+)/disks/([^/]+)")


def disks_of(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and mode of each disk in a node's body."""
    for disk in body.get("dataDisks", ()):
        yield str(disk.get("sourceDisk", "")).rpartition("/")[2], _mode(disk)


def holders(kernel: Kernel, zone: str, name: str) -> list[tuple[Node, str]]:
    """Return the nodes that have a disk, each with its mode."""
    near = [node for node in kernel.state.nodes.values() if node.zone == zone]
    return [(node, mode) for node in near for disk, mode in disks_of(node.body) if disk == name]


def folders(kernel: Kernel, node: Node) -> tuple[str, ...]:
    """Return the folder names of a node's disks, in order."""
    known = kernel.state.disks
    there = [known[node.zone, name] for name, _ in disks_of(node.body) if (node.zone, name) in known]
    return tuple(f"{disk.zone}-{disk.name}-{disk.numeric_id}" for disk in there)


def check(kernel: Kernel, target: CallTarget, fields: Mapping[str, Any], kind: Accelerator) -> None:
    """Raise ApiError 400 for disks that a node cannot have."""
    ours = {kernel.settings.project, str(kernel.settings.project_number)}
    for disk in fields.get("dataDisks", ()):
        source, mode = str(disk.get("sourceDisk", "")), _mode(disk)
        found = _PATH.fullmatch(source)
        if not found:
            raise _refused(kernel, f"The source disk '{source}' is not the path of a disk.")
        if (
            found[1] not in ours
            or found[2] != target.zone
            or (target.zone, found[3]) not in kernel.state.disks
        ):
            raise _refused(kernel, f"The resource '{source}' was not found")
        if mode == WRITES and kind.hosts > 1:
            raise _refused(
                kernel, f"The disk resource '{source}' cannot be attached to several hosts to write."
            )
        vm = kernel.state.disks[target.zone, found[3]].user
        for node, other in holders(kernel, target.zone, found[3]):
            if WRITES in (mode, other):
                raise _refused(kernel, f"The disk resource '{source}' is already being used by '{node.path}'")
        if vm:
            raise _refused(kernel, f"The disk resource '{source}' is already being used by '{vm}'")


def _mode(disk: Mapping[str, Any]) -> str:
    mode = disk.get("mode") or WRITES
    return WRITES if mode == "DISK_MODE_UNSPECIFIED" else str(mode)


def _refused(kernel: Kernel, text: str) -> ApiError:
    return ApiError(
        400, "INVALID_ARGUMENT", f"Cloud TPU received a bad request. {text} [EID: 0x{kernel.hex(16)}]"
    )
