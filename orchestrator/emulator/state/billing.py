"""
Compute what the local cloud would have cost, by clock and price table.

Assumed: a TPU is billed from READY until it is stopped, preempted, terminated or its deletion starts, also
while it is REPAIRING, HIDDEN or unhealthy; a VM while it is RUNNING or STOPPING; a disk from its creation to
its deletion. A TPU or VM preempted within its first minute is free. Addresses and traffic are not billed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FREE_IF_PREEMPTED_WITHIN = 60.0
"""Lifetime in seconds up to which a preempted machine is not billed (docs/facts.md)."""
_HOURS_A_MONTH = 730.0


@dataclass
class Usage:
    """One billed period; *usd_hour* is None if the price table has no row."""

    resource: str
    kind: str
    zone: str
    sku: str
    usd_hour: float | None
    spot: bool
    start: float
    end: float | None = None
    free: bool = False


@dataclass(frozen=True)
class BillLine:
    """One line of the bill; *usd* is None if the price is unknown."""

    resource: str
    kind: str
    zone: str
    sku: str
    seconds: float
    usd: float | None
    spot: bool


def per_hour(usd_gib_month: float | None, gib: int) -> float | None:
    """Return the hourly price of a disk in USD, at 730 hours a month."""
    return None if usd_gib_month is None else usd_gib_month * gib / _HOURS_A_MONTH


def close(usage: Sequence[Usage], resource: str, kind: str, now: float, preempted: bool = False) -> None:
    """End the newest open period of *resource*; a preemption within the first minute makes it free."""
    for item in reversed(usage):
        if item.resource == resource and item.kind == kind:
            if item.end is None:
                item.end = now
                item.free = preempted and now - item.start < FREE_IF_PREEMPTED_WITHIN
            return


def bill(usage: Iterable[Usage], now: float) -> list[BillLine]:
    return [_line(item, now) for item in usage]


def _line(item: Usage, now: float) -> BillLine:
    seconds = (now if item.end is None else item.end) - item.start
    usd = None if item.usd_hour is None else item.usd_hour * seconds / 3600
    return BillLine(
        item.resource, item.kind, item.zone, item.sku, seconds, 0.0 if item.free else usd, item.spot
    )
