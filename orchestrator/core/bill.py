"""
What a deployment has cost up to now, by the price table: an estimate, never a bill.
"""

from collections import defaultdict

from orchestrator.core.catalog import Catalog
from orchestrator.core.cost import Estimate, Meter, estimate, hourly
from orchestrator.core.history import History
from orchestrator.core.spec import Spec

METERS = {"node": (Meter.NODE,), "vm": (Meter.VM, Meter.DISK)}


def spent(spec: Spec, catalog: Catalog, history: History, now: float) -> Estimate:
    """
    Return the cost of all spans up to *now*, each at the price of its own zone.
    """
    seconds: dict[str, dict[Meter, float]] = defaultdict(lambda: defaultdict(float))
    for span in history.spans:
        for meter in METERS[span.kind]:
            seconds[span.zone][meter] += max(0.0, (span.until or now) - span.since)
    parts = [estimate(hourly(spec, catalog, zone), meters) for zone, meters in seconds.items()]
    unknown = tuple(dict.fromkeys(name for part in parts for name in part.unknown))
    known = sum(part.known_usd for part in parts)
    return Estimate(None if unknown else known, known, unknown)
