"""List which zones offer which types of TPU, at which prices."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from orchestrator.domain.catalog import Accelerator, Catalog
from orchestrator.domain.names import region_of


@dataclass(frozen=True)
class PricedZones:
    """
    The zones of one region that offer types of one generation at the same price.

    Prices are in USD per chip and hour, those of the smallest of the *types*; *spot_upper* is the highest of any
    source. Zones in *unlisted* are not in Google's public list, so some projects cannot use them.
    """

    generation: str
    types: tuple[str, ...]
    zones: tuple[str, ...]
    unlisted: tuple[str, ...]
    spot: float | None
    spot_upper: float | None
    on_demand: float | None

    def as_dict(self) -> dict[str, object]:
        """Return zones and prices as `--json` prints it."""
        body = asdict(self)
        prices = {f"{name}_usd_chip_hour": body.pop(name) for name in ("spot", "spot_upper", "on_demand")}
        return {**body, **prices}


def priced_zones(catalog: Catalog, wanted: str = "") -> tuple[PricedZones, ...]:
    """Return the zones of all types, by generation and region, or those of the *wanted* type or generation."""
    kinds = [one for one in catalog.accelerators.values() if wanted in {"", one.type, one.generation}]
    regions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in kinds:
        for zone in catalog.zones_of(one.type):
            regions[one.generation, region_of(zone)].add(zone)
    return tuple(
        _priced(catalog, generation, (one for one in kinds if one.generation == generation), zones)
        for (generation, _), zones in sorted(regions.items())
    )


def _priced(catalog: Catalog, generation: str, kinds: Iterable[Accelerator], zones: set[str]) -> PricedZones:
    there = sorted(
        (one for one in kinds if zones.intersection(catalog.zones_of(one.type))), key=lambda one: one.chips
    )
    first = there[0]
    # One zone of the region stands for all: the tables have a price for each region.
    zone = min(zones.intersection(catalog.zones_of(first.type)))

    def of(*, spot: bool, upper: bool = False) -> float | None:
        usd = catalog.tpu_price(first.type, zone, spot=spot, upper=upper)
        return None if usd is None else round(usd / first.chips, 6)

    return PricedZones(
        generation,
        tuple(one.type for one in there),
        tuple(sorted(zones)),
        tuple(sorted(one for one in zones if not catalog.is_documented(first.type, one))),
        of(spot=True),
        of(spot=True, upper=True),
        of(spot=False),
    )
