"""
Compute what the next TPU would cost, and the extra cost of being far from the bucket.

A price that the tables lack stays unknown (None).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from orchestrator.domain.catalog import UNKNOWN_PRICE, Catalog, Price
from orchestrator.domain.names import home_region, region_of, regions
from orchestrator.domain.spec import Spec

MOVED_GIB = 10.0
"""Assumed GiB per hour between TPU and bucket: saves, and downloads of a new TPU."""
FAR = 0.85
"""Factor for the worth of a zone away from the bucket, which is therefore asked later."""

_CONTINENTS = {
    "us": "North America",
    "northamerica": "North America",
    "europe": "Europe",
    "eu": "Europe",
    "asia": "Asia",
    "southamerica": "South America",
}


@dataclass(frozen=True)
class Prices:
    """USD per hour of a TPU by (type, zone), and USD per GiB between a zone and the bucket."""

    tpus: Mapping[tuple[str, str], Price] = field(default_factory=dict)
    egress: Mapping[str, float | None] = field(default_factory=dict)

    def tpu(self, tpu_type: str, zone: str) -> Price:
        """Return the price of a type in a zone."""
        return self.tpus.get((tpu_type, zone), UNKNOWN_PRICE)

    def egress_hour(self, zone: str) -> float:
        """Return the assumed USD per hour for a job's traffic, 0 if the price is unknown."""
        # Unknown counts as 0 in this sum only; `nearness` never treats such a zone as near.
        return (self.egress.get(zone, 0.0) or 0.0) * MOVED_GIB

    def nearness(self, tpu_type: str, zone: str, *, spot: bool) -> float:
        """Return the factor for a zone's worth by its distance to the bucket: 1 beside it, less elsewhere."""
        if self.egress.get(zone, 0.0) == 0.0:
            return 1.0
        usd = self.tpu(tpu_type, zone).of(spot)
        return FAR if usd is None else min(FAR, usd / (usd + self.egress_hour(zone)))

    def fares(self, tpu_type: str, zones: Sequence[str], *, spot: bool) -> dict[str, float]:
        """
        Return each zone's price of an hour, if an hour of work is worth the cheapest on-demand price.

        Empty if any price is unknown: an unknown price must not make a zone look better.
        """
        usd = {zone: self.tpu(tpu_type, zone).of(spot) for zone in zones}
        known = {zone: price for zone, price in usd.items() if price is not None}
        full = [price for price in (self.tpu(tpu_type, zone).on_demand for zone in zones) if price]
        if len(known) < len(zones) or len(full) < len(zones):
            return {}
        return {zone: price / min(full) for zone, price in known.items()}


def prices(catalog: Catalog, tpu_types: Sequence[str], zones: Sequence[str], bucket: str) -> Prices:
    """Return the prices of *tpu_types* in *zones*, for a bucket in the region or multi-region *bucket*."""
    on_demand, cheap = partial(catalog.tpu_price, spot=False), partial(catalog.tpu_price, spot=True)
    places = [(tpu_type, zone) for tpu_type in tpu_types for zone in zones]
    tpus = {place: Price(on_demand(*place), cheap(*place)) for place in places}
    return Prices(tpus, {zone: egress_usd(catalog, region_of(zone), bucket) for zone in zones})


def egress_usd(catalog: Catalog, region: str, bucket: str) -> float | None:
    """
    Return USD per GiB between a region and a bucket elsewhere, 0 in the same region, None if unknown.

    For a multi-region it is the price between two regions of its continent, the highest possible one.
    """
    if region == bucket:
        return 0.0
    ends = {_CONTINENTS.get(place.partition("-")[0], "") for place in (region, bucket)}
    name = _route(ends)
    return catalog.egress_price(f"between regions, {name}") if name else None


def ways_to_bucket(spec: Spec, catalog: Catalog) -> dict[str, float | None]:
    """Return USD per GiB between the bucket and each of the file's other regions."""
    home = home_region(spec)
    return {region: egress_usd(catalog, region, home) for region in regions(spec) if region != home}


def _route(ends: set[str]) -> str:
    """Return the row of the price table for two continents, or for one; empty if there is none."""
    if "" in ends:
        return ""
    # Before the others: Google's table has one row for it, wherever the other end is.
    if "South America" in ends:
        return "South America"
    if "Asia" in ends:
        return "Asia or to/from Asia"
    return "North America - Europe" if len(ends) == 2 else ends.pop()
