"""Since when a machine costs money."""

from typing import TYPE_CHECKING

from orchestrator.domain.observation import Node, NodeState, Present, World

if TYPE_CHECKING:
    from orchestrator.domain.record import Record

CREATING = "creating:"
TO_THE_MINUTE = 60.0
"""Seconds for which a look at a node that is being created is not noted anew: each note is a write."""


def billed_since(node: Node, record: "Record", now: float) -> float:
    """
    Return since when a TPU is billed that is seen to run *now* and has no open span.

    One that was being created may have been ready at once after the last sure look at it; one from an earlier
    stretch has begun since the last look. Of any other nobody knows: it may have run since its creation,
    while no controller could look.
    """
    creating = record.sightings.get(creating_key(node.name))
    if creating is not None:
        return min(creating, now)
    known = any(span.name == node.name for span in record.spans)
    return now if known else min(node.created_at or now, now)


def creating_key(name: str) -> str:
    """Return the key of the sighting that says when a node was last surely seen being created."""
    return f"{CREATING}{name}"


def last_creating(record: "Record", world: World, now: float) -> dict[str, float]:
    """Return the sightings of nodes that are being created, as of the last look that saw all nodes."""
    known = {key: at for key, at in record.sightings.items() if key.startswith(CREATING)}
    if not isinstance(world.nodes, Present):
        return known
    keys = [creating_key(node.name) for node in world.nodes.value if node.state is NodeState.CREATING]
    fresh = {key for key in keys if key in known and now - known[key] < TO_THE_MINUTE}
    return {key: known[key] if key in fresh else now for key in keys}
