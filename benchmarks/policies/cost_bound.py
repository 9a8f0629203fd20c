"""
The least that a job with a deadline can cost, for somebody who knows the whole trace. Exact.
"""

from math import ceil

import numpy as np

from benchmarks.policies.trace import Trace


def least_cost(trace: Trace, start: int, ticks: int, work: int, cold: float) -> float:
    """
    Return the least USD for *work* ticks of work within *ticks* ticks from *start* on.

    Dynamic programming from the deadline back. Each array is indexed by the work that is left: *idle* is the
    least cost without a machine, *spot[zone]* and *demand* with one that works. A change takes `cold` seconds
    that are paid; while no spot machine may be lost, waiting and leaving are free.
    """
    hours, ahead = trace.tick / 3600, ceil(cold / trace.tick)
    up = trace.up[:, start : start + ticks]
    price = trace.price[:, start : start + ticks] * hours
    demand_price = trace.on_demand * hours
    never = np.full(work + 1, np.inf)
    never[0] = 0.0
    idle = never
    spots = [np.tile(never, (len(trace.zones), 1)) for _ in range(ahead)]
    demands = [never for _ in range(ahead)]
    for t in range(ticks - 1, -1, -1):
        on = up[:, t]
        starts = up[:, t : t + ahead].all(axis=1) & (t + ahead <= ticks)
        best = np.minimum(idle, demands[-1] + demand_price * ahead)
        if starts.any():
            paid = price[starts, t : t + ahead].sum(axis=1)
            best = np.minimum(best, (spots[-1][starts] + paid[:, None]).min(axis=0))
        best[0] = 0.0
        spot = np.tile(best, (len(trace.zones), 1))
        spot[on, 1:] = np.minimum(spot[on, 1:], spots[0][on, :-1] + price[on, t][:, None])
        demand = best.copy()
        demand[1:] = np.minimum(demand[1:], demands[0][:-1] + demand_price)
        idle, spots, demands = best, [spot, *spots[:-1]], [demand, *demands[:-1]]
    return float(idle[work])
