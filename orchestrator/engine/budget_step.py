"""What a pass has to do with the create budget: look at it, and tell others of stockouts."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.domain.observation import World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record
from orchestrator.errors import Retry
from orchestrator.planning.create_budget import Budget


def with_budget(world: World, budget: Budget, zones: Sequence[str], kind: str) -> World:
    """Return the world with what the budget says of *zones* and of one type."""
    held, stockouts = budget.held(zones, world.seen_at), budget.stockouts(kind, world.seen_at)
    return replace(world, held=held, stockouts=stockouts) if held or stockouts else world


def tell_stockouts(budget: Budget, records: Sequence[Record], told: float) -> float:
    """Tell others of the stockouts after *told*; return the time of the last one that they know."""
    new = {
        (refusal.zone, refusal.at): record.node.type
        for record in records
        for refusal in record.refusals
        if refusal.at > told and refusal.kind is Kind.NODE and refusal.retry is Retry.CAPACITY
        if not refusal.on_demand
    }
    for (zone, at), kind in sorted(new.items()):
        budget.refused(zone, kind, at)
    return max([told, *(at for _, at in new)])
