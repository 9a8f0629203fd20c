"""
What a deployment has cost up to now, by the price table: an estimate, never a bill.
"""

from orchestrator.core.catalog import Catalog
from orchestrator.core.cost import Estimate, Hourly, Meter, estimate, hourly
from orchestrator.core.history import History, Span
from orchestrator.core.spec import Spec

METERS = {"node": Meter.NODE, "vm": Meter.VM}


def spent(spec: Spec, catalog: Catalog, history: History, now: float) -> Estimate:
    """
    Return the cost of all spans up to *now*, each at the price of its own zone.
    """
    prices = {zone: hourly(spec, catalog, zone) for zone in {span.zone for span in history.spans}}
    parts = [_cost(prices[span.zone], span, now) for span in history.spans]
    unknown = tuple(dict.fromkeys(name for part in parts for name in part.unknown))
    known = sum(part.known_usd for part in parts)
    return Estimate(None if unknown else known, known, unknown)


def _cost(prices: Hourly, span: Span, now: float) -> Estimate:
    seconds = max(0.0, (span.until or now) - span.since)
    meters = {METERS[span.kind]: seconds}
    if span.kind == "vm":
        meters[Meter.DISK] = seconds
    return estimate(prices, meters)
