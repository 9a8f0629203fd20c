"""
What a deployment has cost up to now, by the price table: an estimate, never a bill.
"""

from collections import defaultdict
from dataclasses import replace

from orchestrator.core.catalog import Catalog
from orchestrator.core.cost import Estimate, Meter, estimate, hourly
from orchestrator.core.history import History, Span
from orchestrator.core.spec import Spec

Priced = tuple[str, bool | None]
METERS = {"node": (Meter.NODE,), "vm": (Meter.VM, Meter.DISK)}


def priced_as(spec: Spec, span: Span) -> Spec:
    """
    Return the spec by whose prices a span is billed: the file's, but with the type and class that it had.
    """
    if span.spot is None and not span.type:
        return spec
    spot = spec.tpu.spot if span.spot is None else span.spot
    return replace(spec, tpu=replace(spec.tpu, type=span.type or spec.tpu.type, spot=spot))


def spent(spec: Spec, catalog: Catalog, history: History, now: float) -> Estimate:
    """
    Return the cost of all spans up to *now*, each at the price of its own zone.
    """
    seconds: dict[tuple[Priced, str], dict[Meter, float]] = defaultdict(lambda: defaultdict(float))
    wanted: dict[Priced, Spec] = {}
    for span in history.spans:
        priced = span.type, span.spot
        wanted.setdefault(priced, priced_as(spec, span))
        for meter in METERS[span.kind]:
            seconds[priced, span.zone][meter] += max(0.0, (span.until or now) - span.since)
    parts = [
        estimate(hourly(wanted[priced], catalog, zone), meters) for (priced, zone), meters in seconds.items()
    ]
    unknown = tuple(dict.fromkeys(name for part in parts for name in part.unknown))
    known = sum(part.known_usd for part in parts)
    return Estimate(None if unknown else known, known, unknown)
