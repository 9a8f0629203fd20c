"""
A list of TPUs that is older than one seen before.

The API's lists may be some seconds behind. Where a deployment is made anew under the same name, such a list
shows the TPU of its earlier life, which is being deleted, in the place of the one that works.
"""

from dataclasses import replace

from orchestrator.domain.first_seen import FirstSeen, Sign, of_node
from orchestrator.domain.observation import Node, Present, Unknown, World
from orchestrator.domain.record import Record


def not_older(world: World, record: Record) -> World:
    """
    Return *world*, with its TPUs Unknown where one was made before the one that was seen under its name.

    Both times are of the API's own clock.
    """
    if not isinstance(world.nodes, Present):
        return world
    old = [node.name for node in world.nodes.value if _is_older(node, record)]
    if not old:
        return world
    return replace(
        world, nodes=Unknown(f"the list shows an earlier {old[0]}: it is older than the one before")
    )


def made(record: Record, world: World) -> dict[FirstSeen, float]:
    """Return when the TPUs in question were made, by the API's clock."""
    asked = {record.node.incarnation, *(rival.incarnation for rival in record.race.rivals)}
    told = {
        _key(number): record.first_seen[_key(number)] for number in asked if _key(number) in record.first_seen
    }
    for node in world.nodes.value if isinstance(world.nodes, Present) else ():
        if node.incarnation in asked and node.machine and node.created_at:
            told[_key(node.incarnation)] = max(node.created_at, told.get(_key(node.incarnation), 0.0))
    return told


def _is_older(node: Node, record: Record) -> bool:
    # A queued resource without a machine has the time at which it was asked for.
    return node.machine and 0 < node.created_at < record.first_seen.get(_key(node.incarnation), 0.0)


def _key(incarnation: int | None) -> FirstSeen:
    return of_node(incarnation, Sign.MADE)
