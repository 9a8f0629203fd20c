"""
Estimate what a deployment has cost, by resource, zone, day and use; never a bill.

What the time was used for: `pricing/use_spans.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.names import home_region
from orchestrator.domain.record import Record, Span
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.pricing.cost import HOURS_A_MONTH, Hourly, Meter, PriceLine, hourly, upper_to_ttl
from orchestrator.pricing.cost_so_far import (
    UnwatchedEnd,
    cost_so_far,
    metered,
    priced_as,
    rates_now,
    unwatched_ends,
)
from orchestrator.pricing.use_spans import Use, UseSpan, use_spans

Metered = tuple[Span, tuple[Meter, ...]]
"""A billed span, with its meters."""
BY_PREEMPTIONS = (Use.LOST, Use.RECOVERING)


@dataclass(frozen=True)
class StoredAmount:
    """
    GiB in the bucket and since when, in seconds since the epoch.

    *cache* says that a machine has saved them for later ones.
    """

    gib: float
    since: float
    cache: bool = False


@dataclass(frozen=True)
class Item:
    """One priced item in one zone: number of machines, seconds of all of them, and cost."""

    what: str
    zone: str
    machines_count: int
    machine_seconds: float
    usd: float | None
    on_demand_usd: float | None


@dataclass(frozen=True)
class CostBreakdown:
    """
    The cost so far and its parts.

    *unpriced* names items without a known price, which the sums leave out. *machines_upper_usd* is the sum of
    the machines alone at the highest prices, which a budget counts. *usd_hour* is per hour of what exists now,
    *upper_usd_hour* the same at the highest prices. *to_ttl_usd* is the sum at the end of ttl if everything runs
    all the time, *to_ttl_upper_usd* at the highest prices. *budget_lasts_s* is the number of seconds until the
    budget is used up at those. *unwatched_ends* are TPUs whose time of end is not known: *usd* has them up to the
    report that they owed, *machines_upper_usd* up to when their end was observed.
    """

    usd: float
    machines_upper_usd: float
    on_demand_usd: float
    items: tuple[Item, ...]
    zones: Mapping[str, float]
    days: Mapping[str, float]
    uses: Mapping[str, float]
    unpriced: tuple[str, ...]
    usd_hour: float
    ttl_remaining_s: float | None
    to_ttl_usd: float | None
    budget_usd: float | None
    budget_lasts_s: float | None
    prices: Hourly
    storage_gib: float = 0.0
    caches_gib: float = 0.0
    to_ttl_upper_usd: float | None = None
    upper_usd_hour: float = 0.0
    unwatched_ends: tuple[UnwatchedEnd, ...] = ()

    @property
    def preemptions_usd(self) -> float:
        """Return the cost of preemptions in USD: work done twice, and the time of recoveries."""
        return sum(self.uses.get(use.value, 0.0) for use in BY_PREEMPTIONS)

    @property
    def upper_usd(self) -> float:
        """Return the whole sum in USD, with storage, at the highest prices of any source."""
        return max(self.usd, self.machines_upper_usd + self.uses.get(Use.STORAGE.value, 0.0))

    @property
    def counted_upper_usd(self) -> float:
        """Return `upper_usd` of the time that *usd* and *on_demand_usd* count, by which they are compared."""
        return max(self.usd, self.upper_usd - sum(end.upper_usd for end in self.unwatched_ends))

    @property
    def lower_saved_usd(self) -> float | None:
        """Return `saved_usd` at the highest spot prices, at least 0; None if a price is not known."""
        return None if self.unpriced else max(0.0, self.on_demand_usd - self.counted_upper_usd)

    @property
    def saved_usd(self) -> float | None:
        """Return how much more the same would have cost on demand, None if a price is not known."""
        return None if self.unpriced else self.on_demand_usd - self.usd


def cost_breakdown(
    spec: Spec,
    catalog: Catalog,
    record: Record,
    heartbeats: Sequence[Heartbeat],
    now: float,
    stored: Sequence[StoredAmount] = (),
) -> CostBreakdown:
    """
    Return the cost up to *now*; *heartbeats* are the last heartbeats of all incarnations.

    Storage is what the bucket has *stored* now, since it was written. Deleted objects, requests and traffic
    are not included, and budgets do not count storage.
    """
    prices = _SpanPrices(spec, catalog, now)
    parts = use_spans(record.spans, heartbeats, now, record.up_times)
    billed = tuple(metered(record))
    uses, days, zones = ({} for _ in range(3)) if not billed else _split(prices, billed, parts)
    # What was saved is measured against the same machines on demand, the VM included.
    vm = replace(spec.vm, spot=False) if isinstance(spec.vm, VmSpec) else spec.vm
    on_demand = _SpanPrices(replace(spec, tpu=replace(spec.tpu, spot=False), vm=vm), catalog, now)
    items = (*_items(prices, on_demand, billed), *_storage(spec, catalog, stored, now, zones, days, uses))
    usd = sum(item.usd for item in items if item.usd is not None)
    # As the budget counts: machines only. So the sum above, which has storage, may be the larger one.
    most = cost_so_far(spec, catalog, record, now).upper_usd
    whole = hourly(spec, catalog, record.node.zone or spec.tpu.zones[0])
    goes_on = record.started_at and not record.outcome
    remaining = max(0.0, record.started_at + spec.watch.ttl - now) if goes_on else None
    hour, budget = whole.billed_usd, spec.watch.budget_usd
    to_ttl = None if remaining is None or hour is None else usd + hour * remaining / 3600
    rate, rate_upper = rates_now(spec, catalog, record)
    rest = None if remaining is None else upper_to_ttl(whole, remaining)
    return CostBreakdown(
        usd=usd,
        machines_upper_usd=most,
        on_demand_usd=sum(item.on_demand_usd for item in items if item.on_demand_usd is not None),
        items=items,
        zones=zones,
        days=dict(sorted(days.items())),
        uses=uses,
        unpriced=tuple(dict.fromkeys(f"{item.what} in {item.zone}" for item in items if item.usd is None)),
        usd_hour=rate,
        ttl_remaining_s=remaining,
        to_ttl_usd=to_ttl,
        budget_usd=budget,
        budget_lasts_s=max(0.0, budget - most) / whole.upper_usd * 3600
        if goes_on and budget and whole.upper_usd
        else None,
        prices=whole,
        storage_gib=sum(one.gib for one in stored),
        caches_gib=sum(one.gib for one in stored if one.cache),
        to_ttl_upper_usd=None if rest is None else max(usd, most) + rest,
        upper_usd_hour=rate_upper,
        unwatched_ends=unwatched_ends(spec, catalog, record),
    )


def _storage(
    spec: Spec, catalog: Catalog, stored: Sequence[StoredAmount], now: float,
    zones: dict[str, float], days: dict[str, float], uses: dict[str, float],
) -> tuple[Item, ...]:  # fmt: skip
    """Return the bucket's cost as an item, and add it to the shares by place, day and use."""
    if not stored:
        return ()
    region = home_region(spec)
    longest = max(0.0, now - min(one.since for one in stored))
    price = catalog.storage_price(region)
    if price is None:
        # An item without a price, so that the sums name what they leave out.
        return (Item("storage", region, 1, longest, None, None),)
    total = 0.0
    for one in stored:
        rate = one.gib * price / (HOURS_A_MONTH * 3600)
        for day, since, until in _days(one.since, now):
            days[day] = days.get(day, 0.0) + (until - since) * rate
            total += (until - since) * rate
    zones[region] = zones.get(region, 0.0) + total
    uses[Use.STORAGE.value] = uses.get(Use.STORAGE.value, 0.0) + total
    return (Item("storage", region, 1, longest, total, total),)


class _SpanPrices:
    """Price spans by the tables, at the prices of their own zone."""

    def __init__(self, spec: Spec, catalog: Catalog, now: float) -> None:
        self._spec, self._catalog, self.now = spec, catalog, now
        self._prices: dict[tuple[str, bool | None, str], Hourly] = {}

    def lines(self, one: Metered) -> tuple[PriceLine, ...]:
        """Return what is priced in a span."""
        span, meters = one
        key = span.type or self._spec.tpu.type, span.spot, span.zone
        if key not in self._prices:
            self._prices[key] = hourly(priced_as(self._spec, span), self._catalog, span.zone)
        return tuple(line for line in self._prices[key].lines if line.meter in meters)

    def rate(self, one: Metered) -> float:
        """Return the known part of the price in USD per hour."""
        return sum(line.billed_usd for line in self.lines(one) if line.billed_usd is not None)

    def seconds(self, span: Span, since: float = 0.0, until: float = float("inf")) -> float:
        """Return the seconds for which the machine existed between two times."""
        return max(0.0, min(span.until or self.now, until) - max(span.since, since))


def _split(
    prices: _SpanPrices, billed: Sequence[Metered], parts: Sequence[UseSpan]
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Return the cost by use, by day (UTC) and by zone; each adds up to the total."""
    uses: dict[str, float] = defaultdict(float)
    days: dict[str, float] = defaultdict(float)
    zones: dict[str, float] = defaultdict(float)
    for one in billed:
        span, rate = one[0], prices.rate(one) / 3600
        whole = prices.seconds(span)
        zones[span.zone] += whole * rate
        used = 0.0
        for part in parts:
            seconds = prices.seconds(span, part.since, part.until)
            uses[part.use.value] += seconds * rate
            used += seconds
        # Outside of every span of use: before the first TPU only the VM, or its disk, costs.
        uses[Use.IDLE.value] += max(0.0, whole - used) * rate
        for day, since, until in _days(span.since, span.since + whole):
            days[day] += (until - since) * rate
    known = {use.value: uses[use.value] for use in Use if uses.get(use.value)}
    return known, dict(sorted(days.items())), dict(zones)


def _days(since: float, until: float) -> Iterator[tuple[str, float, float]]:
    """Yield the days (UTC) between two times with the part of each that lies between them."""
    while since < until:
        midnight = datetime.fromtimestamp(since, timezone.utc).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        end = min(until, (midnight + timedelta(days=1)).timestamp())
        yield midnight.strftime("%Y-%m-%d"), since, end
        since = end


def _items(prices: _SpanPrices, on_demand: _SpanPrices, billed: Iterable[Metered]) -> Iterator[Item]:
    """Yield the cost of each priced item by zone; *on_demand* is the price of the same on demand."""
    groups: dict[tuple[str, str, bool], list[tuple[Span, PriceLine, PriceLine]]] = defaultdict(list)
    for one in billed:
        # A span without a class is priced as the spec says, which in *on_demand* is on demand.
        span, full_price = one[0], (replace(one[0], spot=None), one[1])
        for line, other in zip(prices.lines(one), on_demand.lines(full_price), strict=True):
            # Separate from spot, so that the cost of the deadline is visible.
            at_full_price = span.spot is False and line.meter is Meter.NODE and not line.minor
            groups[line.what, span.zone, at_full_price].append((span, line, other))
    for (what, zone, at_full_price), members in groups.items():
        seconds = sum(prices.seconds(span) for span, _, _ in members)
        # By name: a machine that was stopped and started again has several spans.
        machines = len({span.name for span, _, _ in members})
        usd = _cost(prices, ((span, line.billed_usd) for span, line, _ in members))
        full_usd = _cost(prices, ((span, other.billed_usd) for span, _, other in members))
        yield Item(f"{what}, on demand" if at_full_price else what, zone, machines, seconds, usd, full_usd)


def _cost(prices: _SpanPrices, parts: Iterable[tuple[Span, float | None]]) -> float | None:
    """Return the sum of spans at their own prices per hour, None if one is unknown."""
    total = 0.0
    for span, price in parts:
        if price is None:
            return None
        total += price * prices.seconds(span) / 3600
    return total
