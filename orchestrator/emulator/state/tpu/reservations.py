"""
Model reservations of TPUs: which exist, how much of one is used, and who may use it.

Known: text and code for one that does not exist and for one that is too small; the full name contains the
zone (docs/facts.md 1.6). Not known, chosen here: a queued request waits while others use the reservation, and
fails at once if the reservation could never hold it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.emulator.state import tables
from orchestrator.emulator.state.api_errors import OperationError, tpu_case
from orchestrator.emulator.state.kernel import Kernel
from orchestrator.emulator.state.values.node import DEAD, Node
from orchestrator.emulator.state.values.queued import QueuedResource, QueuedState

ANY = "-"
_HOLDING = (QueuedState.PROVISIONING, QueuedState.ACTIVE)
_PATH = re.compile(r"projects/([^/]+)/locations/([^/]+)/reservations/([^/]+)")


@dataclass(frozen=True)
class Reservation:
    """A reservation whose size is that of one TPU of *type*."""

    name: str
    zone: str
    type: str

    @property
    def accelerator(self) -> tables.Accelerator:
        """Return the type that fills the reservation."""
        return tables.accelerators()[self.type]


def in_zone(kernel: Kernel, zone: str) -> list[Reservation]:
    known = kernel.settings.reservations
    return [Reservation(name, at, kind) for (at, name), kind in sorted(known.items()) if at == zone]


def wanted(kernel: Kernel, path: str) -> list[Reservation]:
    """Return the reservations of a full name, [] if there is none; `-` means any."""
    found, ours = _PATH.fullmatch(path), {kernel.settings.project, str(kernel.settings.project_number)}
    if not found or found[1] not in ours:
        return []
    return [one for one in in_zone(kernel, found[2]) if found[3] in (ANY, one.name)]


def used(kernel: Kernel, one: Reservation, but: QueuedResource | None = None) -> int:
    """
    Return how much of a reservation is used, in units of its quota, without the queued resource *but*.

    TPUs requested without a name count in every reservation that fits, because they use all of them in
    aggregated form.
    """
    plain = [n for n in kernel.state.nodes.values() if not n.queued and n.state not in DEAD]
    queued = [
        node
        for found in kernel.state.queued.values()
        if found.state in _HOLDING and found is not but and _names(kernel, found, one)
        for node in found.wanted
    ]
    return _need(n for n in (*plain, *queued) if n.reserved and n.zone == one.zone and _fits(one, [n]))


def _names(kernel: Kernel, queued: QueuedResource, one: Reservation) -> bool:
    return one in wanted(kernel, str(queued.body.get("reservationName", "")))


def refusal(kernel: Kernel, found: Iterable[Reservation], nodes: Sequence[Node]) -> OperationError | None:
    """Return why *nodes* can never use the reservations *found*, else None."""
    known = list(found)
    if not known:
        return tpu_case("zone serves only reservations").operation_error()
    return None if _size(known, nodes) >= _need(nodes) else lacking(kernel)


def has_room(
    kernel: Kernel, found: Iterable[Reservation], nodes: Sequence[Node], but: QueuedResource | None = None
) -> bool:
    """Return whether the reservations *found* have room for *nodes* now, not counting *but*, which asks."""
    known = [one for one in found if _fits(one, nodes)]
    return _size(known, nodes) - sum(used(kernel, one, but) for one in known) >= _need(nodes)


def lacking(kernel: Kernel) -> OperationError:
    """Return the error of a reservation that is too small."""
    return tpu_case("no reserved capacity").operation_error(hex=kernel.hex(16))


def _size(known: Iterable[Reservation], nodes: Sequence[Node]) -> int:
    return sum(one.accelerator.counted for one in known if _fits(one, nodes))


def _fits(one: Reservation, nodes: Sequence[Node]) -> bool:
    return all(node.accelerator.generation == one.accelerator.generation for node in nodes)


def _need(nodes: Iterable[Node]) -> int:
    return sum(node.accelerator.counted for node in nodes)
