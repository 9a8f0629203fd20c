"""Since when a machine costs money."""

from typing import TYPE_CHECKING

from orchestrator.domain.first_seen import FirstSeen, Sign, of_name
from orchestrator.domain.observation import Node, NodeState, Present, World

if TYPE_CHECKING:
    from orchestrator.domain.record import Record

TO_THE_MINUTE = 60.0
"""Seconds for which a look at a node that is being created is not noted anew: each note is a write."""


def billed_since(node: Node, record: "Record", now: float) -> float:
    """
    Return since when a TPU is billed that is seen to run *now* and has no open span.

    One that was being created may have been ready at once after the last sure look at it; one from an earlier
    stretch has begun since the last look. Of any other nobody knows: it may have run since its creation,
    while no controller could look.
    """
    creating = record.first_seen.get(of_name(node.name, Sign.LAST_CREATING))
    if creating is not None:
        return min(creating, now)
    known = any(span.name == node.name for span in record.spans)
    return now if known else min(node.created_at or now, now)


def last_creating(record: "Record", world: World, now: float) -> dict[FirstSeen, float]:
    """Return when nodes were seen being created, by the last look that saw all nodes."""
    known = {key: at for key, at in record.first_seen.items() if key.state is Sign.LAST_CREATING}
    if not isinstance(world.nodes, Present):
        return known
    keys = [of_name(n.name, Sign.LAST_CREATING) for n in world.nodes.value if n.state is NodeState.CREATING]
    fresh = {key for key in keys if key in known and now - known[key] < TO_THE_MINUTE}
    return {key: known[key] if key in fresh else now for key in keys}
