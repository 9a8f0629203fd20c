"""Estimate what a deployment has cost so far, from the price table; never a bill."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.first_seen import Condition, FirstSeen, of_name
from orchestrator.domain.observation import Node, NodeState, Observed, Present, Vm, World
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.record import Record, Span
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import at_most_text
from orchestrator.pricing.cost import Estimate, Hourly, Meter, estimate, hourly

Priced = tuple[str, bool | None]
TO_THE_MINUTE = 60.0
"""Seconds before the observation of a node in CREATING is recorded again, because each record is a write."""
METERS = {Kind.NODE: (Meter.NODE,), Kind.VM: (Meter.VM,)}


def metered(record: Record) -> Iterator[tuple[Span, tuple[Meter, ...]]]:
    """Yield each billed span with its meters; a stopped VM still has its disk."""
    yield from ((span, METERS[span.kind]) for span in record.spans)
    yield from ((span, (Meter.DISK,)) for span in record.disks)


def priced_as(spec: Spec, span: Span) -> Spec:
    """Return the spec for the prices of a span: the file's, with the span's own type and class."""
    if span.spot is None and not span.type:
        return spec
    spot = spec.tpu.spot if span.spot is None else span.spot
    return replace(spec, tpu=replace(spec.tpu, type=span.type or spec.tpu.type, spot=spot))


def hourly_of(spec: Spec, plan: Plan, catalog: Catalog, there: Span | None = None) -> Hourly:
    """
    Return the price per hour with the TPU that *plan* creates, else with the one that is *there*.

    Without either it is that of the first zone.
    """
    made = [c for c in plan.changes if c.requests_tpu and c.zone]
    if made:
        wanted = replace(spec, tpu=replace(spec.tpu, type=made[0].type or spec.tpu.type))
        return hourly(wanted, catalog, made[0].zone)
    if there is not None:
        return hourly(priced_as(spec, there), catalog, there.zone)
    return hourly(spec, catalog, spec.tpu.zones[0])


def newest_span(record: Record) -> Span | None:
    """Return the span of the newest TPU that exists, None if there is none."""
    spans = [span for span in record.spans if span.kind is Kind.NODE and span.until is None]
    return max(spans, key=lambda span: span.since, default=None)


def rates_now(spec: Spec, catalog: Catalog, record: Record) -> tuple[float, float]:
    """Return the USD per hour of what exists, at the lowest and the highest prices; unknown ones are left out."""
    lines = [
        line
        for span, meters in metered(record)
        if span.until is None
        for line in hourly(priced_as(spec, span), catalog, span.zone).lines
        if line.meter in meters
    ]
    return sum(one.billed_usd or 0.0 for one in lines), sum(one.upper_usd or 0.0 for one in lines)


def cost_so_far(spec: Spec, catalog: Catalog, record: Record, now: float) -> Estimate:
    """
    Return the cost of all spans up to *now*, each at the price of its own zone.

    The upper sum has the whole time in which a TPU without a watcher may have ended.
    """
    seconds: dict[tuple[Priced, str], dict[Meter, float]] = defaultdict(lambda: defaultdict(float))
    wanted: dict[Priced, Spec] = {}
    for span, metering in metered(record):
        priced = span.type or spec.tpu.type, span.spot
        if priced not in wanted:
            wanted[priced] = priced_as(spec, span)
        for meter in metering:
            # By the span's own type and class: a change of the file does not change past costs.
            seconds[priced, span.zone][meter] += max(0.0, (span.until or now) - span.since)
    parts = [
        estimate(hourly(wanted[priced], catalog, zone), meters) for (priced, zone), meters in seconds.items()
    ]
    unpriced = tuple(dict.fromkeys(name for part in parts for name in part.unpriced))
    known = sum(part.known_usd for part in parts)
    most = sum(part.upper_usd for part in parts) + sum(
        end.upper_usd for end in unwatched_ends(spec, catalog, record)
    )
    return Estimate(None if unpriced else known, known, unpriced, most)


@dataclass(frozen=True)
class UnwatchedEnd:
    """
    A TPU that ended between *until*, up to which it is counted, and *observed_at*, in seconds since the epoch.

    *upper_usd* is what it cost more at most.
    """

    name: str
    until: float
    observed_at: float
    upper_usd: float

    @property
    def text(self) -> str:
        """Return the sentences about it."""
        until, observed = (
            f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M UTC}"
            for at in (self.until, self.observed_at)
        )
        most = at_most_text(self.upper_usd)
        return (
            f"The end of {self.name} was not watched: it lies between {until} (after its last report) and "
            f"{observed} (when it was seen). It is counted until the first; until the second it is {most} "
            "more, which the higher sum includes."
        )


def unwatched_ends(spec: Spec, catalog: Catalog, record: Record) -> tuple[UnwatchedEnd, ...]:
    """Return the TPUs of whose end only a report before it tells."""
    found = []
    for span, metering in metered(record):
        if span.until is None or span.end_observed is None:
            continue
        unsure = max(0.0, span.end_observed - span.until)
        rates = hourly(priced_as(spec, span), catalog, span.zone)
        most = estimate(rates, dict.fromkeys(metering, unsure)).upper_usd
        found.append(UnwatchedEnd(span.name, span.until, span.end_observed, most))
    return tuple(found)


def billed_since(node: Node, record: "Record", now: float) -> float:
    """
    Return since when a TPU is billed that runs *now* and has no open span, in seconds since the epoch.

    One that was being created may have become READY right after the last complete observation; one with
    earlier spans started again since then. Any other is billed from its creation, because it may have run
    while no controller observed it.
    """
    creating = record.first_seen.get(of_name(node.name, Condition.LAST_CREATING))
    if creating is not None:
        return min(creating, now)
    known = any(span.name == node.name for span in record.spans)
    return now if known else min(node.created_at or now, now)


def vm_billed_since(vm: Vm, record: "Record", now: float) -> float:
    """
    Return since when a VM is billed that runs *now* and has no open span, in seconds since the epoch.

    It is its start as the API names it, but neither before the deployment began, as an adopted VM may be older,
    nor before the end of its last span.
    """
    ended = [span.until for span in record.spans if span.name == vm.name and span.until is not None]
    return min(max(vm.started_at or now, record.started_at, *ended), now)


def vm_billed_until(span: Span, vm: Observed[Vm], now: float) -> float:
    """
    Return until when a VM is billed that no longer runs *now*, in seconds since the epoch.

    It is its stop as the API names it: the loop on the VM stops its own machine, and no controller sees the end.
    A stop before its last start is that of an earlier run, and where nothing tells the end, it is *now*.
    """
    if isinstance(vm, Present) and 0 < vm.value.stopped_at >= vm.value.started_at:
        return min(max(vm.value.stopped_at, span.since), now)
    return now


def last_creating(record: "Record", world: World, now: float) -> dict[FirstSeen, float]:
    """Return when each node was last seen in CREATING by a complete observation."""
    known = {key: at for key, at in record.first_seen.items() if key.state is Condition.LAST_CREATING}
    if not isinstance(world.nodes, Present):
        return known
    keys = [
        of_name(n.name, Condition.LAST_CREATING) for n in world.nodes.value if n.state is NodeState.CREATING
    ]
    fresh = {key for key in keys if key in known and now - known[key] < TO_THE_MINUTE}
    return {key: known[key] if key in fresh else now for key in keys}
