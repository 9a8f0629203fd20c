"""What a self-test may cost and how long it may live, settled before anything is created."""

from dataclasses import dataclass

from orchestrator.pricing.cost import Hourly, Meter, estimate

NO_TPU = 15 * 60.0
"""Seconds that a self-test without a TPU may live."""
SHORTEST = 20 * 60.0
"""Seconds that all steps with a TPU take at least; a budget for less is none."""
USUAL = 45 * 60.0
"""Seconds that all steps take on the real service, by its published times (docs/selftest.md)."""
USUAL_NO_TPU = 6 * 60.0


@dataclass(frozen=True)
class Limits:
    """Hold the time to live in seconds, the usual sum and the greatest one in USD."""

    ttl: float
    usual_usd: float
    most_usd: float


def limits(price: Hourly, budget_usd: float, seconds: float, *, tpu: bool) -> Limits | None:
    """
    Return what holds within *budget_usd* and *seconds*; None when a price is unknown or the budget too small.

    The time to live is short enough that even all machines together, left alone, stay within the budget.
    """
    meters = tuple(Meter) if tpu else (Meter.VM, Meter.DISK)
    found = estimate(price, dict.fromkeys(meters, 3600.0))
    if found.usd is None:
        return None
    hour = found.most_usd
    longest = seconds if tpu else min(seconds, NO_TPU)
    ttl = min(longest, budget_usd / hour * 3600 if hour else longest)
    shortest, usual = (SHORTEST, USUAL) if tpu else (USUAL_NO_TPU, USUAL_NO_TPU)
    if ttl < shortest:
        return None
    return Limits(ttl, hour * min(usual, ttl) / 3600, hour * ttl / 3600)
