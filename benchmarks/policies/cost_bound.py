"""The least that a job with a deadline can cost, for somebody who knows the whole trace."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from benchmarks.policies.trace import Trace


def least_cost(trace: Trace, start: int, ticks: int, work: int, create: float, boot: float) -> float:
    """Return the least USD for *work* ticks of work within *ticks* ticks from *start* on."""
    return least_costs(trace, [start], ticks, work, create, boot)[0]


def least_costs(
    trace: Trace, starts: Sequence[int], ticks: int, work: int, create: float, boot: float
) -> list[float]:
    """
    Return the least cost from each of several starts, which are worked out side by side.

    Dynamic programming from the deadline back. Each array is indexed by the start and the work that is left:
    *idle* is the least cost without a machine, *spot* (by zone as well) and *demand* with one that works. A
    machine takes *create* seconds, in which it costs nothing and the one before it may work, since who knows
    the trace asks in time, then *boot* seconds that are paid and bring nothing. Both take whole ticks. A zone
    that is down has an endless price.
    """
    hours, before, ahead = trace.tick / 3600, ceil(create / trace.tick), ceil(boot / trace.tick)
    booting = boot / (ahead * trace.tick)
    spans = [slice(start, start + ticks) for start in starts]
    up = np.array([trace.up[:, span] for span in spans])
    price = np.array([trace.price[:, span] for span in spans]) * hours
    demand_price = trace.on_demand * hours
    never = np.full((len(starts), work + 1), np.inf)
    never[:, 0] = 0.0
    idle = never
    spots = [np.repeat(never[:, None], up.shape[1], axis=1) for _ in range(ahead)]
    demands = [never for _ in range(ahead)]
    for t in range(ticks - 1, -1, -1):
        best = idle
        if t >= before:
            best = np.minimum(best, demands[-1] + demand_price * ahead * booting)
            begins = up[:, :, t - before : t + ahead].all(axis=2)
            if t + ahead <= ticks and begins.any():
                paid = np.where(begins, price[:, :, t : t + ahead].sum(axis=2) * booting, np.inf)
                best = np.minimum(best, (spots[-1] + paid[:, :, None]).min(axis=1))
        best[:, 0] = 0.0
        works = np.where(up[:, :, t], price[:, :, t], np.inf)[:, :, None]
        spot = np.empty_like(spots[0])
        spot[:, :, 0] = 0.0
        np.minimum(best[:, None, 1:], spots[0][:, :, :-1] + works, out=spot[:, :, 1:])
        demand = best.copy()
        demand[:, 1:] = np.minimum(best[:, 1:], demands[0][:, :-1] + demand_price)
        idle, spots, demands = best, [spot, *spots[:-1]], [demand, *demands[:-1]]
    return [float(cost) for cost in idle[:, work]]
