"""
Since when a machine costs money.
"""

from typing import TYPE_CHECKING

from orchestrator.core.world import Node

if TYPE_CHECKING:
    from orchestrator.core.history import History


def billed_since(node: Node, history: "History", now: float) -> float:
    """
    Return since when a TPU is billed that is seen to run *now* and has no open span.

    One that was known before, as being created or from an earlier stretch, has begun since the last look.
    Of any other nobody knows: it may have run since its creation, while no controller could look.
    """
    creating = f"node:{node.incarnation}:creating" in history.sightings
    known = creating or any(span.name == node.name for span in history.spans)
    return now if known else min(node.created_at or now, now)
