"""
The market that every policy meets: what a request for a machine brings, and when the machine dies.

A request in a zone that is up is ready after `create` seconds, unless the zone goes down first. In a zone
that is down it fails after `refuse` seconds. A machine dies when its zone goes down. All times are seconds
of the trace.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from benchmarks.policies.trace import Trace, lifetimes
from orchestrator.contract.interval import (
    UNKNOWN_ZONE,
    WorkPeriod,
    ZonePreemptions,
    save_interval,
    time_between_interruptions,
)

SLOT = 30.0
"""Seconds for which a zone under stress gives the same answer."""


@dataclass(frozen=True)
class Latency:
    """
    Hold how long things take, and how the job saves.

    The time until a TPU is READY was never published: 60, 180 and 300 s are three scenarios.
    """

    create: float = 180.0
    refuse: float = 30.0
    delete: float = 60.0
    push: float = 60.0
    restore: float = 120.0
    every: float = 600.0
    save: float = 5.0
    notice: float = 30.0

    @property
    def floor(self) -> float:
        """Return the seconds of a recovery that no policy can take away."""
        return self.create + self.push + self.restore

    def useful(self, first_step: float, death: float, *, noticed: bool) -> float:
        """
        Return the seconds of training that survive a machine that steps from *first_step* to *death*.

        With a notice the job stops early, and saves in the time that is left.
        """
        saved, unsaved = self.worked(first_step, death - self.notice if noticed else death)
        return saved + (unsaved if noticed else 0.0)

    def worked(self, first_step: float, at: float) -> tuple[float, float]:
        """Return the seconds of training up to a time: those that are saved, and those since."""
        whole, rest = divmod(max(0.0, at - first_step), self.every + self.save)
        return whole * self.every, min(rest, self.every)

    def worked_with_auto(
        self,
        first_step: float,
        at: float,
        earlier: Sequence[WorkPeriod],
        zone: ZonePreemptions = UNKNOWN_ZONE,
    ) -> tuple[float, float]:
        """
        Return the same with `every: auto`.

        It learns from *earlier* lifetimes of the job, from this one so far, and from what is known of the *zone*.
        """
        now, saved = first_step, 0.0
        while True:
            periods = [*earlier, WorkPeriod(now - first_step, lost=False, ended=False)]
            every = save_interval(self.save, time_between_interruptions(periods, zone))
            if now + every + self.save > at:
                return saved, min(max(0.0, at - now), every)
            now, saved = now + every + self.save, saved + every


@dataclass(frozen=True)
class Stress:
    """
    Thin a market to what TPUs show: most requests are refused, and machines live for minutes.

    What half a minute of a zone brings is drawn once, so that every policy meets the same luck.
    """

    accepted: float = 0.25
    brief: float = 0.5
    shortest: float = 600.0
    longest: float = 1500.0


class Market:
    """Answer requests for machines of a trace."""

    def __init__(
        self,
        trace: Trace,
        latency: Latency,
        stress: Stress | None = None,
        seed: int = 0,
        lived: Sequence[float] = (),
    ) -> None:
        self.trace = trace
        self.latency = latency
        self.zones = range(len(trace.zones))
        self.end = trace.seconds
        self.stressed = stress is not None
        self._stress = stress
        self._luck: dict[tuple[int, int], tuple[bool, float]] = {}
        self._seed = seed
        self._lifetimes = list(lived) or lifetimes() if stress else []
        rows = [list(map(bool, row)) for row in trace.up]
        self._edges = [_edges(row, trace.tick) for row in rows]
        starts = [_starts(edges, self.end, latency.create) for edges in self._edges]
        self._useful = _edges_of(sorted(start for zone in starts for start in zone))
        self._useless = _downtime(self._useful)
        bill = np.cumsum(trace.price, axis=1) * trace.tick / 3600
        self._bill: list[list[float]] = np.pad(bill, ((0, 0), (1, 0))).tolist()

    def up(self, zone: int, at: float) -> bool:
        """Return whether the zone has capacity."""
        return bisect_right(self._edges[zone], at) % 2 == 1

    def changes(self, zone: int, at: float) -> float:
        """Return when the zone next goes up or down."""
        edges = self._edges[zone]
        index = bisect_right(edges, at)
        return edges[index] if index < len(edges) else self.end

    def since(self, zone: int, at: float) -> float:
        """Return since when the zone is as it is."""
        index = bisect_right(self._edges[zone], at)
        return self._edges[zone][index - 1] if index else 0.0

    def luck(self, zone: int, at: float) -> tuple[bool, float]:
        """Return whether a request of this half minute is taken, and how long its machine lives at most."""
        if self._stress is None:
            return True, float("inf")
        key = (zone, int(at // SLOT))
        if key not in self._luck:
            draw = Random(f"{self._seed}:{key}")
            taken = draw.random() < self._stress.accepted
            brief = draw.random() < self._stress.brief
            lifetime = draw.uniform(self._stress.shortest, self._stress.longest)
            self._luck[key] = taken, lifetime if brief else draw.choice(self._lifetimes)
        return self._luck[key]

    def ask(self, zone: int, at: float) -> tuple[bool, float, float]:
        """Ask for a machine: (True, ready, death), or (False, time of the refusal, the same)."""
        taken, lifetime = self.luck(zone, at)
        if not taken or not self.up(zone, at):
            return False, at + self.latency.refuse, at + self.latency.refuse
        down, ready = self.changes(zone, at), at + self.latency.create
        if down <= ready:
            return False, down, down
        return True, ready, min(down, ready + lifetime)

    def usd(self, zone: int, since: float, until: float) -> float:
        """Return what a spot machine costs from a time to a time."""
        return self._usd_until(zone, until) - self._usd_until(zone, since)

    def _usd_until(self, zone: int, at: float) -> float:
        bill = self._bill[zone]
        index = min(max(0.0, at) / self.trace.tick, len(bill) - 1.0)
        whole = min(int(index), len(bill) - 2)
        return bill[whole] + (index - whole) * (bill[whole + 1] - bill[whole])

    def soonest(self, at: float) -> float:
        """Return when somebody who knows all answers would have a machine, asking from a time on."""
        while at < self.end:
            ready = [self.ask(zone, at) for zone in self.zones]
            if any(taken for taken, _, _ in ready):
                return min(when for taken, when, _ in ready if taken)
            at = (at // SLOT + 1) * SLOT
        return self.end

    def without_capacity(self, start: float, end: float) -> float:
        """Return for how much of a time no zone would have given a machine: none was up for long enough."""
        return self._down_until(end) - self._down_until(start)

    def _down_until(self, at: float) -> float:
        index = bisect_right(self._useful, at)
        since = self._useful[index - 1] if index else 0.0
        return (self._useless[index - 1] if index else 0.0) + (at - since if index % 2 == 0 else 0.0)


def _edges(row: list[bool], tick: float) -> list[float]:
    """Return when a zone went up, down, up ..., beginning with the first time it was up."""
    before = [False, *row[:-1]]
    return [i * tick for i, (was, now) in enumerate(zip(before, row, strict=True)) if was != now]


def _starts(edges: list[float], end: float, create: float) -> list[tuple[float, float]]:
    """Return the times from when to when a request would bring a machine."""
    downs = [*edges[1::2], end]
    return [(up, down - create) for up, down in zip(edges[::2], downs, strict=False) if down - up > create]


def _edges_of(spans: list[tuple[float, float]]) -> list[float]:
    """Return the edges of the union of times, which come in order."""
    edges: list[float] = []
    for start, end in spans:
        if edges and start <= edges[-1]:
            edges[-1] = max(edges[-1], end)
        else:
            edges += [start, end]
    return edges


def _downtime(edges: list[float]) -> list[float]:
    """Return the time outside of the edges' pairs, up to each edge."""
    total, since, sums = 0.0, 0.0, []
    for i, edge in enumerate(edges):
        total += edge - since if i % 2 == 0 else 0.0
        sums.append(total)
        since = edge
    return sums
