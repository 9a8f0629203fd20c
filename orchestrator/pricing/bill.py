"""What a deployment has cost up to now, by the price table: an estimate, never a bill."""

from collections import defaultdict
from dataclasses import replace

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.plan import Kind, Plan, Verb
from orchestrator.domain.record import Record, Span
from orchestrator.domain.spec import Spec
from orchestrator.pricing.cost import Estimate, Hourly, Meter, estimate, hourly

Priced = tuple[str, bool | None]
METERS = {Kind.NODE: (Meter.NODE,), Kind.VM: (Meter.VM, Meter.DISK)}


def priced_as(spec: Spec, span: Span) -> Spec:
    """Return the spec by whose prices a span is billed: the file's, but with the type and class that it had."""
    if span.spot is None and not span.type:
        return spec
    spot = spec.tpu.spot if span.spot is None else span.spot
    return replace(spec, tpu=replace(spec.tpu, type=span.type or spec.tpu.type, spot=spot))


def hourly_of(spec: Spec, plan: Plan, catalog: Catalog, there: Span | None = None) -> Hourly:
    """
    Return the price per hour with the TPU that *plan* makes, else with the one that is *there*.

    Without either it is that of the first zone.
    """
    made = [c for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.CREATE and c.zone]
    if made:
        wanted = replace(spec, tpu=replace(spec.tpu, type=made[0].type or spec.tpu.type))
        return hourly(wanted, catalog, made[0].zone)
    if there is not None:
        return hourly(priced_as(spec, there), catalog, there.zone)
    return hourly(spec, catalog, spec.tpu.zones[0])


def rate_now(spec: Spec, catalog: Catalog, record: Record) -> float:
    """Return what one hour of all that exists costs, as far as the prices are known."""
    return sum(
        line.billed_usd or 0.0
        for span in record.spans
        if span.until is None
        for line in hourly(priced_as(spec, span), catalog, span.zone).lines
        if line.meter in METERS[span.kind]
    )


def spent(spec: Spec, catalog: Catalog, record: Record, now: float) -> Estimate:
    """Return the cost of all spans up to *now*, each at the price of its own zone."""
    seconds: dict[tuple[Priced, str], dict[Meter, float]] = defaultdict(lambda: defaultdict(float))
    wanted: dict[Priced, Spec] = {}
    for span in record.spans:
        priced = span.type or spec.tpu.type, span.spot
        wanted.setdefault(priced, priced_as(spec, span))
        for meter in METERS[span.kind]:
            seconds[priced, span.zone][meter] += max(0.0, (span.until or now) - span.since)
    parts = [
        estimate(hourly(wanted[priced], catalog, zone), meters) for (priced, zone), meters in seconds.items()
    ]
    unknown = tuple(dict.fromkeys(name for part in parts for name in part.unknown))
    known = sum(part.known_usd for part in parts)
    return Estimate(None if unknown else known, known, unknown, sum(part.most_usd for part in parts))
