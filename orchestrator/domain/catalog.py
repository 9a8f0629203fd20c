"""
Hold the catalogue: accelerators, zones, runtime versions and prices, each table with its date.

Pure: `build` parses the text of the tables, which `orchestrator.config.shipped_catalog` reads from the
package. A price of None means unknown, never zero.
"""

import csv
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from orchestrator.domain.names import region_of

TABLES = (
    "accelerators",
    "tpu_zones",
    "tpu_quotas",
    "tpu_prices",
    "tpu_prices_published",
    "vm_prices",
    "runtime_versions",
)

_DATE = re.compile(r"(?:date:|read|generated|assembled)\s+(\d{4}-\d{2}(?:-\d{2})?)")
BY_CHIPS = ("v5e", "v6e")
"""Generations whose quota counts chips; the others count cores."""
# The source of TPU prices has 700.0 for unknown.
_PLACEHOLDER = 700.0


@dataclass(frozen=True)
class Accelerator:
    """
    One accelerator type: *hosts* machines with *chips_per_host* chips each.

    *tpu_api* says whether the TPU API serves it; *runtime* is its usual software version, if known;
    *host_mem_gib* is the memory of one machine in GiB, 0 if not known.
    """

    type: str
    generation: str
    config_type: str
    chips: int
    cores: int
    hosts: int
    chips_per_host: int
    topology: str
    hbm_gib_per_chip: float
    tpu_api: bool
    runtime: str | None
    note: str = ""
    host_mem_gib: float = 0.0

    @property
    def devices_per_chip(self) -> int:
        """Return how many devices a framework sees on a chip: two on v2 and v3, with half the memory each."""
        return 2 if self.generation in ("v2", "v3") else 1

    @property
    def counted(self) -> int:
        """Return the amount that quota counts: chips for v5e and v6e, cores for the others (docs/facts.md 1.6)."""
        return self.chips if self.generation in BY_CHIPS else self.cores

    @property
    def size(self) -> int:
        """Return the number in the type's name (cores or chips, by generation); 0 if the name has a topology."""
        tail = self.type.rsplit("-", 1)[-1]
        return int(tail) if tail.isdigit() else 0


@dataclass(frozen=True)
class TpuQuota:
    """
    The quota of a type: *id* as in Google's refusals, *fresh* the limit of a new project.

    *unit* is what is counted, *per* says whether each zone or each region has a limit of its own
    (docs/facts.md 1.6).
    """

    id: str
    fresh: int
    unit: str
    per: str


@dataclass(frozen=True)
class Price:
    """A price in USD, on demand and spot; None means unknown."""

    on_demand: float | None
    spot: float | None

    def or_else(self, other: "Price") -> "Price":
        """Return this price, with unknown parts taken from *other*."""
        return Price(
            other.on_demand if self.on_demand is None else self.on_demand,
            other.spot if self.spot is None else self.spot,
        )

    def of(self, spot: bool) -> float | None:
        """Return the price in USD of spot or on-demand capacity, None if unknown."""
        return self.spot if spot else self.on_demand


UNKNOWN_PRICE = Price(None, None)


@dataclass(frozen=True)
class Catalog:
    """
    The parsed tables. *dates* says when each table's source was read.

    *zones* maps a zone to the types that its TPU API lists, *documented* holds the (zone, generation) pairs
    of Google's documentation; *tpu_prices* is per chip-hour by (generation, zone, several hosts or one);
    *machines* per hour, *others* by (kind, item, region); *machine_mem_gib* is the memory of a VM by machine
    type. *published* holds a second source of TPU prices, by (generation, region, several hosts or one).
    *flex_start* holds the (zone, generation) pairs in which flex-start is known to be offered, *quotas* are
    by (generation, one or many hosts, spot), *pythons* by runtime version.
    """

    accelerators: Mapping[str, Accelerator]
    zones: Mapping[str, tuple[str, ...]]
    documented: frozenset[tuple[str, str]]
    runtimes: tuple[str, ...]
    tpu_prices: Mapping[tuple[str, str, bool], Price]
    machines: Mapping[tuple[str, str], Price]
    others: Mapping[tuple[str, str, str], Price]
    dates: Mapping[str, str]
    machine_mem_gib: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[tuple[str, str, bool], Price] = field(default_factory=dict)
    flex_start: frozenset[tuple[str, str]] = frozenset()
    quotas: Mapping[tuple[str, str, bool], TpuQuota] = field(default_factory=dict)
    pythons: Mapping[str, str] = field(default_factory=dict)

    def accelerator(self, name: str) -> Accelerator | None:
        """Return the accelerator type, or None if the table lacks it."""
        return self.accelerators.get(name)

    def served(self) -> tuple[str, ...]:
        """Return the types that the TPU API serves, in the order of the table."""
        return tuple(name for name, kind in self.accelerators.items() if kind.tpu_api)

    def generations(self) -> tuple[str, ...]:
        """Return the generations of the types that the TPU API serves, in the order of the table."""
        return tuple(dict.fromkeys(self.accelerators[one].generation for one in self.served()))

    def generation(self, name: str) -> str:
        """Return the generation of that name (v5e), or whose types begin with it (v5litepod); "" for none."""
        kinds = (self.accelerators[one] for one in self.served())
        names = ((kind.generation, kind.type.partition("-")[0]) for kind in kinds)
        return next((found for found, family in names if name.lower() in {found, family}), "")

    def zones_of(self, accelerator_type: str) -> tuple[str, ...]:
        """Return the zones that list the type."""
        return tuple(zone for zone, types in self.zones.items() if accelerator_type in types)

    def is_documented(self, accelerator_type: str, zone: str) -> bool:
        """Return whether Google's documentation lists the type's generation as generally available in the zone."""
        found = self.accelerators.get(accelerator_type)
        return found is not None and (zone, found.generation) in self.documented

    def types_in(self, zone: str) -> tuple[str, ...]:
        """Return the types that the zone lists; empty for an unknown zone."""
        return self.zones.get(zone, ())

    def quota_of(self, accelerator_type: str, *, spot: bool) -> TpuQuota | None:
        """Return the quota that the type counts against, or None when it is not known."""
        found = self.accelerators.get(accelerator_type)
        if found is None:
            return None
        hosts = "one" if found.hosts == 1 else "many"
        exact = self.quotas.get((found.generation, hosts, spot))
        return exact or self.quotas.get((found.generation, "any", spot))

    def within_quota(self, accelerator_type: str, zone: str, limit: int) -> str:
        """Return the largest type of the same quota in *zone* that fits into *limit*, or ""."""
        wanted, quota = self.accelerator(accelerator_type), self.quota_of(accelerator_type, spot=True)
        known = (self.accelerator(name) for name in self.types_in(zone))
        same = [one for one in known if one and quota and self.quota_of(one.type, spot=True) == quota]
        fits = [one for one in same if wanted and one.counted <= limit and one.counted < wanted.counted]
        return max(fits, key=lambda one: one.counted).type if fits else ""

    def runtime_for(self, accelerator_type: str) -> str | None:
        """Return the usual TPU software version for the type, or None when it is not known."""
        found = self.accelerators.get(accelerator_type)
        return found.runtime if found else None

    def python_of(self, runtime: str) -> str:
        """Return the Python of a TPU software version, "" if it is not known."""
        return self.pythons.get(runtime, "")

    @cached_property
    def _with_hosts_price(self) -> frozenset[str]:
        """Return the generations that have a separate rate for several hosts."""
        return frozenset(name for name, _, several in self.tpu_prices if several)

    def tpu_price(self, accelerator_type: str, zone: str, spot: bool, *, upper: bool = False) -> float | None:
        """
        Return USD per hour for the whole slice, or None if the price is unknown.

        If the sources differ, the billing catalogue's price counts, or with *upper* the highest. Prices of a
        generation scale with the chips; v2 and v3 have a separate rate for several hosts.
        """
        found = self.accelerators.get(accelerator_type)
        if found is None:
            return None
        several = found.hosts > 1 and found.generation in self._with_hosts_price
        price = self.tpu_prices.get((found.generation, zone, several), UNKNOWN_PRICE).of(spot)
        if price is None:
            return None
        other = self.published.get((found.generation, region_of(zone), several), UNKNOWN_PRICE).of(spot)
        # Budgets use the highest price: the cheaper source must not cause an overrun.
        return (max(price, other or 0.0) if upper else price) * found.chips

    def with_prices(self, found: Mapping[tuple[str, str, bool], Price], date: str) -> "Catalog":
        """
        Return the catalogue with fresher TPU prices, by (generation, region, several hosts or one).

        Prices that *found* lacks stay as they were.
        """
        table, doubts = dict(self.tpu_prices), dict(self.published)
        for (generation, zone, several), price in self.tpu_prices.items():
            fresh = found.get((generation, region_of(zone), several), UNKNOWN_PRICE)
            table[generation, zone, several] = fresh.or_else(price)
        for place, fresh in found.items():
            doubt = doubts.pop(place, UNKNOWN_PRICE)
            doubts[place] = fresh.or_else(doubt)
        dates = {**self.dates, "tpu_prices": date}
        return replace(self, tpu_prices=table, published=doubts, dates=dates)

    def vm_price(self, machine_type: str, region: str, spot: bool) -> float | None:
        """Return USD per hour for a machine type, or None if the price is unknown."""
        return self.machines.get((machine_type, region), UNKNOWN_PRICE).of(spot)

    def disk_price(self, disk_type: str, region: str) -> float | None:
        """Return USD per GiB-month, or None when the price is unknown."""
        return self.others.get(("disk", disk_type, region), UNKNOWN_PRICE).on_demand

    def address_price(self, region: str) -> float | None:
        """Return USD per hour for an external IPv4 address in use, or None when the price is unknown."""
        return self.others.get(("ip", "external ip vm", region), UNKNOWN_PRICE).on_demand

    def storage_price(self, region: str) -> float | None:
        """Return USD per GiB-month of standard storage, or None when the price is unknown."""
        multi = self.others.get(("gcs", f"standard multi-region {region}", region), UNKNOWN_PRICE)
        return self.others.get(("gcs", "standard", region), multi).on_demand

    def egress_price(self, route: str) -> float | None:
        """Return USD per GiB on a route such as `between regions, Europe`, or None if it is unknown."""
        return self.others.get(("egress", route, "any"), UNKNOWN_PRICE).on_demand


def build(tables: Mapping[str, str]) -> Catalog:
    """Build the catalogue from the texts of the tables, by the names in TABLES."""
    rows = {name: _rows(tables[name]) for name in TABLES}
    # Reversed, so that the first row of a generation wins: it is the usual one.
    runtimes = {row["generation"]: row["runtime_version"] for row in reversed(rows["runtime_versions"])}
    accelerators = {a.type: a for a in (_accelerator(row, runtimes) for row in rows["accelerators"])}
    listed: dict[str, list[str]] = {}
    for row in rows["tpu_zones"]:
        if "yes" in (row["listed_in_api"], row["listed_in_docs"]):
            listed.setdefault(row["zone"], []).extend(_listed(row, accelerators.values()))
    vm_rows = rows["vm_prices"]
    return Catalog(
        accelerators,
        {zone: tuple(dict.fromkeys(types)) for zone, types in sorted(listed.items()) if types},
        frozenset((r["zone"], r["generation"]) for r in rows["tpu_zones"] if r["listed_in_docs"] == "yes"),
        tuple(dict.fromkeys(r["runtime_version"] for r in rows["runtime_versions"] if _literal(r))),
        _tpu_prices(rows["tpu_prices"], accelerators),
        {(row["item"], row["region"]): _price(row) for row in vm_rows if row["kind"] == "vm"},
        {(row["kind"], row["item"], row["region"]): _price(row) for row in vm_rows if row["kind"] != "vm"},
        {name: _date(tables[name]) for name in TABLES},
        {row["item"]: float(row["mem_gib"]) for row in vm_rows if row["kind"] == "vm" and row["mem_gib"]},
        _tpu_prices(rows["tpu_prices_published"], accelerators, "region"),
        frozenset((r["zone"], r["generation"]) for r in rows["tpu_zones"] if r["flex_start"] == "yes"),
        {
            (row["generation"], row["hosts"], spot): _quota(row, spot)
            for row in rows["tpu_quotas"]
            for spot in (False, True)
        },
        {row["runtime_version"]: row["python"] for row in rows["runtime_versions"] if row["python"]},
    )


def _quota(row: Mapping[str, str], spot: bool) -> TpuQuota:
    kind, fresh = ("Preemptible", "fresh_spot") if spot else ("", "fresh_on_demand")
    name = f"{row['before']}{kind}{row['after']}PerProjectPer{row['counted_per']}ForTPUAPI"
    unit = "chips" if row["generation"] in BY_CHIPS else "cores"
    return TpuQuota(name, int(row[fresh]), unit, row["counted_per"].lower())


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def _date(text: str) -> str:
    match = _DATE.search("\n".join(line for line in text.splitlines() if line.startswith("#")))
    return match[1] if match else "unknown"


def _accelerator(row: Mapping[str, str], runtimes: Mapping[str, str]) -> Accelerator:
    return Accelerator(
        type=row["accelerator_type"],
        generation=row["generation"],
        config_type=row["accelerator_config_type"],
        chips=int(row["chips"]),
        cores=int(row["tensor_cores"]),
        hosts=int(row["hosts"]),
        chips_per_host=int(row["chips_per_host"]),
        topology=row["topology"],
        hbm_gib_per_chip=float(row["hbm_gib_per_chip"]),
        tpu_api=row["tpu_api"] == "yes",
        runtime=runtimes.get(row["generation"]),
        note=row["note"],
        host_mem_gib=float(row["host_mem_gib"] or 0),
    )


def _listed(row: Mapping[str, str], accelerators: Iterable[Accelerator]) -> list[str]:
    """Return the types of a zone's row, within its sizes."""
    fitting = [one for one in accelerators if one.generation == row["generation"] and one.tpu_api]
    low, high = int(row["smallest"] or 0), int(row["largest"] or sys.maxsize)
    return [one.type for one in fitting if low <= one.size <= high]


def _literal(row: Mapping[str, str]) -> bool:
    """Return whether the row names one runtime version, not a pattern or an image."""
    return "(" not in row["generation"] and not re.search(r"[\s\[/]|x\.y\.z", row["runtime_version"])


def _tpu_prices(
    rows: Iterable[Mapping[str, str]], accelerators: Mapping[str, Accelerator], where: str = "zone"
) -> dict[tuple[str, str, bool], Price]:
    prices = {}
    for row in rows:
        basis = accelerators.get(row["basis_type"])
        price = Price(_usd(row["on_demand_usd_chip_hour"]), _usd(row["spot_usd_chip_hour"]))
        prices[row["generation"], row[where], basis is not None and basis.hosts > 1] = price
    return prices


def _price(row: Mapping[str, str]) -> Price:
    return Price(_usd(row["on_demand_usd"]), _usd(row["spot_usd"]))


def _usd(text: str) -> float | None:
    # The tables use zero for unknown; a free machine would make a budget last for ever.
    return float(text) if text and float(text) not in (0.0, _PLACEHOLDER) else None


def region_zones(catalog: Catalog, region: str) -> tuple[str, ...]:
    """Return the zones of *region* that have any TPU type, in the catalog's order."""
    return tuple(zone for zone in catalog.zones if region_of(zone) == region)
