"""The most that anybody could keep who knew the whole trace: no work is lost, and no detection takes time."""

from math import ceil

from benchmarks.policies.market import Latency
from benchmarks.policies.trace import Trace


def most_retained(trace: Trace, latency: Latency) -> float:
    """
    Return the most useful seconds, by dynamic programming over ticks from the end.

    free is the best from a tick on without a machine, held[zone] with one there. A machine costs `floor`
    seconds before its first step, all of them while its zone is up; changing to another one is allowed.
    """
    tick, ahead = trace.tick, ceil(latency.floor / trace.tick)
    spare = ahead * tick - latency.floor
    rows = [list(map(bool, row)) for row in trace.up]
    ticks = len(rows[0])
    free = 0.0
    held = [[0.0] * (ahead + 1) for _ in rows]
    runs = [0] * len(rows)
    for i in range(ticks - 1, -1, -1):
        stay = [0.0] * len(rows)
        best = free
        for zone, row in enumerate(rows):
            runs[zone] = runs[zone] + 1 if row[i] else 0
            if runs[zone] >= ahead:
                best = max(best, spare + held[zone][(i + ahead) % (ahead + 1)])
        for zone, row in enumerate(rows):
            on = row[i] and tick + (held[zone][(i + 1) % (ahead + 1)] if runs[zone] > 1 else free)
            stay[zone] = max(best, on) if row[i] else best
        free = best
        for zone, value in enumerate(stay):
            held[zone][i % (ahead + 1)] = value
    return free
