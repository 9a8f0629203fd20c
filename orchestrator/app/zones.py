"""List the zones and prices of a type of TPU, of a generation, or of all types."""

from dataclasses import dataclass

from orchestrator.app.prices import catalog_for
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.text.suggest import did_you_mean, join
from orchestrator.errors import UsageError
from orchestrator.pricing.priced_zones import PricedZones, priced_zones

ALL = "all types: tpuctl zones"


@dataclass(frozen=True)
class ListedZones:
    """The zones of *tpu_type*, else of *generation*, else of all types; both are "" where they do not apply."""

    catalog: Catalog
    tpu_type: str
    generation: str
    offers: tuple[PricedZones, ...]


def list_zones(cloud: str, wanted: str | None) -> ListedZones:
    """Return the zones of the type or generation *wanted*, None for all. Raise UsageError for any other word."""
    catalog = catalog_for(cloud)
    tpu_type = wanted if wanted in catalog.served() else None
    generation = "" if wanted is None or tpu_type else catalog.generation(wanted)
    if wanted is not None and not tpu_type and not generation:
        # Some write a generation without its letter, such as v5.
        near = [one for one in catalog.generations() if one.startswith(wanted.lower()) and wanted]
        raise UsageError(
            f'"{wanted[:60]}" is not a type of the Cloud TPU API, nor a generation of them',
            hint=f"did you mean {join(near)}?" if near else did_you_mean(wanted, catalog.served()) or ALL,
            changed="nothing was changed",
        )
    return ListedZones(catalog, tpu_type or "", generation, priced_zones(catalog, tpu_type or generation))
