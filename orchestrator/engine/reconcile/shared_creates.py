"""What one deployment learns from the create budget that all share, and what it tells the others."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.domain.observation import World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record
from orchestrator.errors import Retry
from orchestrator.planning.tpu.create_budget import CreateBudget


def with_create_budget(
    world: World, create_budget: CreateBudget, zones: Sequence[str], tpu_type: str
) -> World:
    """Return the world with the zones that pause and the stockouts of *tpu_type* that other deployments met."""
    pauses, stockouts = (
        create_budget.pauses(zones, world.observed_at),
        create_budget.stockouts(tpu_type, world.observed_at),
    )
    return replace(world, create_pauses=pauses, stockouts=stockouts) if pauses or stockouts else world


def share_stockouts(create_budget: CreateBudget, records: Sequence[Record], shared_until: float) -> float:
    """Share stockouts after *shared_until* with other deployments; return the time of the last one shared."""
    new = {
        (refusal.zone, refusal.at): record.node.type
        for record in records
        for refusal in record.refusals
        if refusal.at > shared_until and refusal.kind is Kind.NODE and refusal.retry is Retry.CAPACITY
        if not refusal.on_demand
    }
    for (zone, at), tpu_type in sorted(new.items()):
        create_budget.refused(zone, tpu_type, at)
    return max([shared_until, *(at for _, at in new)])
