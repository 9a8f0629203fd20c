"""
Small models of other tools, written from their sources and documents; each says which.

A model runs from the start of the market to its end and books what it does in a ledger.
"""

from collections.abc import Iterable
from math import ceil
from random import Random

from benchmarks.policies.ledger import ReplayLedger

FETCH = 30.0
"""Seconds after which SkyPilot gives up to fetch the status from a machine that is gone."""
CRON = 600.0
"""Period of the cron design: watch -n 600 on a computer, and crontab on the machine."""


def cron(ledger: ReplayLedger, random: Random) -> None:
    """
    Model the 2020 design in one zone: a look every 600 s deletes the dead machine, creates one and waits.

    A crontab on the machine starts the job at the next full period.
    """
    market, zone = ledger.market, 0
    phase = random.uniform(0, CRON)
    now, dead = phase, False
    while now < market.end:
        taken, ready, death = ledger.ask(zone, now + (market.latency.delete if dead else 0.0))
        if not taken:
            now, dead = _next(ready, phase), False
            continue
        begin = _next(ready + market.latency.push + market.latency.restore, phase)
        ledger.lifetime(zone, ready, death, first_step=begin)
        now, dead = _next(death, phase), True


def _next(at: float, phase: float) -> float:
    return phase + ceil((at - phase) / CRON) * CRON


def tpunicorn(ledger: ReplayLedger, random: Random, *, retry: bool) -> None:
    """
    Model `pu babysit` 0.5.5: a list every 30 s, then delete, create and wait, one after the other.

    As written, a refused create leaves no TPU to babysit, and every later round fails.
    """
    market, zone = ledger.market, 0
    now = random.uniform(0, 30.0)
    while now < market.end:
        taken, ready, death = ledger.ask(zone, now)
        if not taken and not retry:
            return
        if not taken:
            now = ready + 30.0
            continue
        observed = now + ceil((ready - now) / 30.0) * 30.0 + 1.0
        ledger.lifetime(
            zone, ready, death, first_step=observed + market.latency.push + market.latency.restore
        )
        now = death + random.uniform(0, 30.0) + market.latency.delete


def levanter(ledger: ReplayLedger, random: Random) -> None:
    """Model levanter's babysit-tpu-vm.sh: the ssh session ends with the machine; create every 5 s for ever."""
    market, zone = ledger.market, 0
    now = 0.0
    while now < market.end:
        taken, ready, death = ledger.ask(zone, now)
        if not taken:
            now = ready + 5.0
            continue
        ledger.lifetime(zone, ready, death)
        now = death + 10.0 + market.latency.delete


def try_zones(ledger: ReplayLedger, zones: Iterable[int], now: float) -> tuple[bool, float, float, int]:
    """Ask zone after zone: (True, ready, death, zone), or (False, now, now, -1)."""
    for zone in zones:
        if now >= ledger.market.end:
            break
        taken, ready, death = ledger.ask(zone, now)
        if taken:
            return True, ready, death, zone
        now = ready
    return False, now, now, -1


def by_price(ledger: ReplayLedger, now: float) -> list[int]:
    """Return the zones, cheapest first, as the price is now."""
    trace = ledger.market.trace
    tick = min(int(now / trace.tick), trace.price.shape[1] - 1)
    return sorted(ledger.market.zones, key=lambda zone: (float(trace.price[zone, tick]), zone))


def region(ledger: ReplayLedger, zone: int) -> str:
    """Return the region of an AWS zone: us-east-1a lies in us-east-1."""
    return ledger.market.trace.zones[zone][:-1]


def sweeps(
    ledger: ReplayLedger, random: Random, keep: list[int], now: float, rounds: int
) -> tuple[bool, float, float, int]:
    """Model SkyPilot's launch: sweeps by price over the zones in *keep*, with back-off between them."""
    backoff = 60.0
    for turn in range(rounds):
        order = [zone for zone in by_price(ledger, now) if zone in keep]
        found = try_zones(ledger, order, now)
        if found[0] or found[1] >= ledger.market.end:
            return found
        now = found[1]
        if turn + 1 < rounds:
            now += backoff * random.uniform(0.6, 1.4)
            backoff = min(backoff * 1.6, 300.0)
    return False, now, now, -1


def skypilot(ledger: ReplayLedger, random: Random, *, eager: bool) -> None:
    """Model managed jobs of SkyPilot 0.14.1: a poll every 15 s, then EAGER_NEXT_REGION or FAILOVER."""
    market = ledger.market
    everywhere = list(market.zones)
    first, now = everywhere, 0.0
    while now < market.end:
        found = sweeps(ledger, random, first, now, 3) if first else (False, now, now, -1)
        while not found[0] and found[1] < market.end:
            now = found[1] + (0.0 if eager or first is everywhere else market.latency.delete)
            found = sweeps(ledger, random, everywhere, now, 240)
            if not found[0]:
                found = (False, found[1] + 60.0, found[1] + 60.0, -1)
        taken, ready, death, zone = found
        if not taken:
            return
        started = ready + market.latency.push + market.latency.restore + random.uniform(0, 5.0)
        ledger.lifetime(zone, ready, death, first_step=started)
        observed = death + random.uniform(0, 15.0) + FETCH
        now = observed + (market.latency.delete if eager else 0.0)
        home = region(ledger, zone)
        first = [z for z in everywhere if (region(ledger, z) != home) == eager]


def dstack(ledger: ReplayLedger, random: Random) -> None:
    """Model dstack 0.22.5 with retry on: unreachable for 2 min is an interruption; resubmitted ever more slowly."""
    market, now, waits = ledger.market, 0.0, 0
    delays = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    while now < market.end:
        taken, ready, death, zone = try_zones(ledger, by_price(ledger, now), now)
        if not taken:
            now = ready + delays[min(waits, 5)] + random.uniform(0, 4.0)
            waits += 1
            continue
        waits = 0
        ledger.lifetime(
            zone,
            ready,
            death,
            first_step=ready + market.latency.push + market.latency.restore + random.uniform(0, 5.0),
        )
        now = death + 120.0 + random.uniform(0, 7.0) + delays[0] + random.uniform(0, 4.0)


def race(ledger: ReplayLedger, random: Random, *, oldest: bool) -> None:
    """
    Model a race: 10 s to see the preemption, then all zones are asked at once, again and again; losers go.

    With *oldest* the winner is the zone that has been up longest, which nobody can know: a bound for luck.
    """
    market, now = ledger.market, 0.0
    while now < market.end:
        answers = [(zone, *ledger.ask(zone, now)) for zone in market.zones]
        ready = [answer for answer in answers if answer[1]]
        if not ready:
            now = min(answer[2] for answer in answers)
            continue
        winner = min(ready, key=lambda a: market.since(a[0], now)) if oldest else random.choice(ready)
        ledger.lifetime(winner[0], winner[2], winner[3])
        now = winner[3] + random.uniform(0, 10.0)
