"""
Estimate what a deployment costs: per hour, to its end, and so far; never a bill.

A price that the tables lack stays unknown (None); a sum with an unknown part is unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.domain.catalog import Catalog, Price
from orchestrator.domain.names import home_region, region_of, vm_zone
from orchestrator.domain.spec import Spec

HOURS_A_MONTH = 730.0
DISK_TYPE = "pd-standard"
"""Type of a boot disk if the request names none, for N1, N2 and similar (reference of the Compute client)."""


class Meter(Enum):
    """The condition under which a price applies."""

    NODE = "node"
    VM = "vm"
    DISK = "disk"

    @property
    def word(self) -> str:
        """Return the word that `--json` prints; the costs of deleted deployments are kept with the value."""
        return "tpu" if self is Meter.NODE else self.value


@dataclass(frozen=True)
class PriceLine:
    """
    One priced item in USD per hour; *billed_usd* is the price for the requested capacity.

    A disk or an address is *minor*: one price, for spot and on demand alike, of cents a day. *upper_usd* is
    the highest price in any source for the requested capacity.
    """

    what: str
    meter: Meter
    spot_usd: float | None
    on_demand_usd: float | None
    billed_usd: float | None
    minor: bool = False
    upper_usd: float | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the line as `--json` prints it."""
        return {
            "what": self.what,
            "meter": self.meter.word,
            "spot_usd": _cents(self.spot_usd),
            "on_demand_usd": _cents(self.on_demand_usd),
            "billed_usd": _cents(self.billed_usd),
            "upper_usd": _cents(self.upper_usd),
        }


@dataclass(frozen=True)
class Hourly:
    """
    The price per hour in one zone; *dates* says when the sources of the price tables were read.

    *storage_usd_gib_month* is separate, because it depends on what the job saves.
    """

    zone: str
    lines: tuple[PriceLine, ...]
    storage_usd_gib_month: float | None
    dates: Mapping[str, str]

    @property
    def spot_usd(self) -> float | None:
        """Return the sum in USD per hour if everything were spot, None if a part is unknown."""
        return _sum(line.spot_usd for line in self.lines)

    @property
    def on_demand_usd(self) -> float | None:
        """Return the sum in USD per hour if everything were on demand, None if a part is unknown."""
        return _sum(line.on_demand_usd for line in self.lines)

    @property
    def billed_usd(self) -> float | None:
        """Return the sum in USD per hour of the requested capacity, None if a part is unknown."""
        return _sum(line.billed_usd for line in self.lines)

    @property
    def upper_usd(self) -> float | None:
        """Return the sum of the highest price of each line in any source, in USD per hour, or None."""
        return _sum(line.upper_usd for line in self.lines)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Return the items without a known price."""
        return tuple(line.what for line in self.lines if line.billed_usd is None)

    @property
    def date_text(self) -> str:
        """Return the age of the prices, in words."""
        text = f"TPU prices of {self.dates['tpu_prices']}, VM prices of {self.dates['vm_prices']}"
        return text if self.upper_usd == self.billed_usd else f"{text}; a budget counts the highest"


@dataclass(frozen=True)
class Estimate:
    """
    The cost of a span of time; *usd* is None if a part that ran has no known price.

    *known_usd* is the sum of the known parts, *unpriced* names the others. *upper_usd* is that sum at the
    highest prices of any source.
    """

    usd: float | None
    known_usd: float
    unpriced: tuple[str, ...] = ()
    upper_usd: float = 0.0


def hourly(spec: Spec, catalog: Catalog, zone: str) -> Hourly:
    """Return the price per hour of the deployment while its TPU is in *zone*."""
    region = region_of(zone)
    node = Price(
        catalog.tpu_price(spec.tpu.type, zone, spot=False), catalog.tpu_price(spec.tpu.type, zone, spot=True)
    )
    most = catalog.tpu_price(spec.tpu.type, zone, spot=spec.tpu.spot, upper=True)
    lines = [replace(_line(f"TPU {spec.tpu.type}", Meter.NODE, node, spec.tpu.spot), upper_usd=most)]
    accelerator = catalog.accelerator(spec.tpu.type)
    address = catalog.address_price(region)
    # The bucket stays in its home region, wherever the TPU is (docs/decisions/0009).
    storage = catalog.storage_price(home_region(spec))
    if spec.tpu.external_ip:
        # Each machine of a slice has an address of its own.
        count = accelerator.hosts if accelerator else 1
        each = None if address is None else address * count
        lines.append(
            _flat(f"TPU external address x{count}" if count > 1 else "TPU external address", Meter.NODE, each)
        )
    if spec.vm != "none":
        # Not the region of the TPU: the VM stays in the first one (docs/decisions/0009).
        vm_region = region_of(vm_zone(spec))
        outside = catalog.address_price(vm_region)
        machine = Price(
            catalog.vm_price(spec.vm.machine_type, vm_region, spot=False),
            catalog.vm_price(spec.vm.machine_type, vm_region, spot=True),
        )
        month = catalog.disk_price(DISK_TYPE, vm_region)
        disk = None if month is None else month * spec.vm.disk_gb / HOURS_A_MONTH
        lines += [
            _line(f"VM {spec.vm.machine_type}", Meter.VM, machine, spec.vm.spot),
            *([_flat("VM external address", Meter.VM, outside)] if spec.vm.external_ip else []),
            # On a meter of its own: a stopped VM still costs its disk (docs/facts.md 2.2).
            _flat(f"VM disk {spec.vm.disk_gb} GB", Meter.DISK, disk),
        ]
    return Hourly(zone, tuple(lines), storage, catalog.dates)


def _line(what: str, meter: Meter, price: Price, spot: bool) -> PriceLine:
    # Only TPUs have a second source of prices; `hourly` replaces their upper end.
    return PriceLine(what, meter, price.spot, price.on_demand, price.of(spot), upper_usd=price.of(spot))


def _flat(what: str, meter: Meter, usd: float | None) -> PriceLine:
    return PriceLine(what, meter, usd, usd, usd, minor=True, upper_usd=usd)


def estimate(hourly: Hourly, seconds: Mapping[Meter, float]) -> Estimate:
    """Return the cost of the *seconds* that each meter ran."""
    ran = [(line, seconds.get(line.meter, 0.0)) for line in hourly.lines if seconds.get(line.meter, 0.0) > 0]
    known = sum(line.billed_usd * length / 3600 for line, length in ran if line.billed_usd is not None)
    unpriced = tuple(line.what for line, _ in ran if line.billed_usd is None)
    most = sum(line.upper_usd * length / 3600 for line, length in ran if line.upper_usd is not None)
    return Estimate(None if unpriced else known, known, unpriced, most)


def to_ttl(hourly: Hourly, ttl: float) -> float | None:
    """
    Return USD for *ttl* seconds with everything running, None if a price is unknown.

    It is the lower bound, by the billing catalogue's prices.
    """
    return None if hourly.billed_usd is None else hourly.billed_usd * ttl / 3600


def upper_to_ttl(hourly: Hourly, ttl: float) -> float | None:
    """Return the USD for *ttl* seconds with everything running at the highest prices, None if one is unknown."""
    whole = to_ttl(hourly, ttl)
    return None if whole is None else max(whole, (hourly.upper_usd or 0.0) * ttl / 3600)


def to_budget(hourly: Hourly, budget_usd: float) -> float | None:
    """
    Return the seconds until *budget_usd* is used up with everything running, None if a price is unknown.

    It uses the highest prices, like the budget itself.
    """
    return budget_usd / hourly.upper_usd * 3600 if hourly.upper_usd else None


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 6)
