"""
Limit how fast all deployments together create TPUs, and where.

The TPU API allows about a hundred writes a minute for each project. If many deployments lose their TPUs at
once, their requests must stay below that, or the API answers all of them with 429.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.domain.machines.capacity import CapacityHistory, ZoneHistory

# Deletions need room below the hundred writes as well: what cannot be deleted keeps costing.
A_MINUTE, MAX_A_MINUTE = 60, 91
"""Creates a minute, by default and at most."""
MINUTE, ZONE_PAUSE = 60.0, 5.0
"""Window of the create budget, and shortest time between two creates in one zone, in seconds."""
SHARED = 3600.0
"""Seconds for which a stockout that one deployment has met counts for the others."""


class CreateBudget(Protocol):
    """Share creates and stockouts among all deployments of this computer; times are in seconds since the epoch."""

    def pauses(self, zones: Sequence[str], now: float) -> Mapping[str, float]:
        """Return the times until which zones pause, without the zones that are free."""

    def take(self, zone: str, now: float) -> float:
        """Take one create in *zone* and return 0, or return until when the zone pauses and take none."""

    def refused(self, zone: str, tpu_type: str, at: float) -> None:
        """Share with all deployments that *zone* had no capacity for *tpu_type*."""

    def stockouts(self, tpu_type: str, now: float) -> CapacityHistory:
        """Return the stockouts of *tpu_type* that any deployment has met within SHARED seconds."""


class Unlimited:
    """A create budget without a limit, shared with no other deployment."""

    def pauses(self, zones: Sequence[str], now: float) -> Mapping[str, float]:
        """Return nothing: no zone ever pauses."""
        return {}

    def take(self, zone: str, now: float) -> float:
        """Return 0: every create is allowed."""
        return 0.0

    def refused(self, zone: str, tpu_type: str, at: float) -> None:
        """Do nothing, because no other deployment shares this create budget."""

    def stockouts(self, tpu_type: str, now: float) -> CapacityHistory:
        """Return nothing: no other deployment shares its stockouts."""
        return ()


@dataclass(frozen=True)
class CreateBudgetContent:
    """The creates of the last minute as (time, zone), and the stockouts of the last hour."""

    creates: tuple[tuple[float, str], ...] = ()
    stockouts: CapacityHistory = field(default_factory=tuple)


def free_at(content: CreateBudgetContent, zone: str, now: float, limit: int) -> float:
    """Return the earliest time for the next create in *zone*, 0 if it is allowed now."""
    # Times in the future are ignored: a clock that was wrong must not hold creates back for hours.
    recent = sorted(at for at, _ in content.creates if now - MINUTE < at <= now)
    times = [recent[-limit] + MINUTE] if len(recent) >= limit else []
    times += [
        at + ZONE_PAUSE for at, where in content.creates if where == zone and at <= now < at + ZONE_PAUSE
    ]
    return max(times, default=0.0)


def with_create(content: CreateBudgetContent, zone: str, now: float) -> CreateBudgetContent:
    """Return the create budget with one more create and without expired ones."""
    recent = tuple((at, where) for at, where in content.creates if now - MINUTE < at <= now)
    return CreateBudgetContent((*recent, (now, zone)), content.stockouts)


def with_stockout(content: CreateBudgetContent, zone: str, tpu_type: str, at: float) -> CreateBudgetContent:
    """Return the create budget with a stockout; one within an hour of another extends it."""
    recent = tuple(p for p in content.stockouts if at - SHARED < p.out_at <= at)
    known = next((p for p in recent if (p.zone, p.type) == (zone, tpu_type)), None)
    one = ZoneHistory(zone, tpu_type, known.out_since if known else at, at)
    others = tuple(p for p in recent if (p.zone, p.type) != (zone, tpu_type))
    return CreateBudgetContent(content.creates, (*others, one))
