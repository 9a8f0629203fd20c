"""Read the local cloud's catalogue from data/*.csv: accelerators, zones, runtimes and prices."""

import csv
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

_RUNTIME_PLACEHOLDERS = ("[", " ", "x.y.z")


@dataclass(frozen=True)
class Accelerator:
    """One accelerator type: *hosts* machines with *chips_per_host* chips each."""

    type: str
    generation: str
    config_type: str
    chips: int
    cores: int
    hosts: int
    chips_per_host: int
    topology: str

    @property
    def counted(self) -> int:
        """Return the amount that quota counts: chips for v5e and v6e, cores for the others."""
        return self.chips if self.generation in ("v5e", "v6e") else self.cores


@dataclass(frozen=True)
class TpuQuota:
    """One quota of TPUs: *fresh* is a new project's limit on demand and spot, *per* Zone or Region."""

    before: str
    after: str
    per: str
    fresh: tuple[int, int]

    def id(self, kind: str, per: str = "") -> str:
        """Return the id in refusals; *kind* is "" for on demand, else `Preemptible` or `Reserved`."""
        return f"{self.before}{kind}{self.after}PerProjectPer{per or self.per}ForTPUAPI"


@dataclass(frozen=True)
class VmType:
    """One machine type of a region, with its hourly prices in USD."""

    name: str
    vcpus: float
    memory_gib: float
    on_demand: float | None
    spot: float | None

    @property
    def guest_cpus(self) -> int:
        """Return the CPUs that the guest sees and the CPUS quota counts (2 for shared-core e2)."""
        return 2 if self.vcpus < 2 else int(self.vcpus)


@cache
def rows(name: str) -> tuple[Mapping[str, str], ...]:
    """Return the rows of data/*name*, without its provenance lines."""
    text = (files("orchestrator") / "data" / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(csv.DictReader(lines))


@cache
def accelerators() -> Mapping[str, Accelerator]:
    served = [row for row in rows("accelerators.csv") if row["tpu_api"] == "yes"]
    return {row["accelerator_type"]: _accelerator(row) for row in served}


def _accelerator(row: Mapping[str, str]) -> Accelerator:
    names = (row["accelerator_type"], row["generation"], row["accelerator_config_type"])
    chips, cores, hosts, each = (
        int(row[key]) for key in ("chips", "tensor_cores", "hosts", "chips_per_host")
    )
    return Accelerator(*names, chips, cores, hosts, each, row["topology"])


@cache
def _quotas() -> Mapping[tuple[str, str], TpuQuota]:
    return {
        (row["generation"], row["hosts"]): TpuQuota(
            row["before"],
            row["after"],
            row["counted_per"],
            (int(row["fresh_on_demand"]), int(row["fresh_spot"])),
        )
        for row in rows("tpu_quotas.csv")
    }


def quota_of(accelerator: Accelerator) -> TpuQuota:
    hosts = "one" if accelerator.hosts == 1 else "many"
    found = _quotas()
    return found.get((accelerator.generation, hosts)) or found[accelerator.generation, "any"]


@cache
def fresh_quotas() -> Mapping[str, int]:
    """Return the limits of a new project by id, each per zone or per region."""
    kinds = [(quota, spot) for quota in _quotas().values() for spot in (False, True)]
    return {quota.id("Preemptible" if spot else ""): quota.fresh[spot] for quota, spot in kinds}


@cache
def zone_types() -> Mapping[str, tuple[str, ...]]:
    """Return the accelerator types that each TPU zone lists, in Google's documentation or in its API."""
    zones: dict[str, list[str]] = {}
    for row in rows("tpu_zones.csv"):
        if "yes" in (row["listed_in_docs"], row["listed_in_api"]):
            known = zones.setdefault(row["zone"], [])
            known += [name for name in _types_of(row) if name not in known]
    # Some zones have only types that the TPU API does not serve.
    return {zone: tuple(types) for zone, types in sorted(zones.items()) if types}


@cache
def flex_start_zones() -> frozenset[tuple[str, str]]:
    """Return (zone, generation) where flex-start is known to be offered."""
    found = (row for row in rows("tpu_zones.csv") if row["flex_start"] == "yes")
    return frozenset((row["zone"], row["generation"]) for row in found)


def _types_of(row: Mapping[str, str]) -> Iterable[str]:
    low, high = int(row["smallest"] or 0), int(row["largest"] or sys.maxsize)
    of_generation = [name for name, one in accelerators().items() if one.generation == row["generation"]]
    return [name for name in of_generation if low <= int(name.rpartition("-")[2]) <= high]


@cache
def runtimes() -> tuple[str, ...]:
    """Return the runtime versions with a literal name; naming patterns are left out."""
    names = [row["runtime_version"] for row in rows("runtime_versions.csv")]
    return tuple(dict.fromkeys(n for n in names if not any(mark in n for mark in _RUNTIME_PLACEHOLDERS)))


def tpu_price(accelerator: Accelerator, zone: str, spot: bool) -> float | None:
    """Return USD per chip-hour, None if the table has no price for the zone's region."""
    column = "spot_usd_chip_hour" if spot else "on_demand_usd_chip_hour"
    pods = accelerator.generation in ("v2", "v3") and accelerator.hosts > 1
    best: float | None = None
    for row in rows("tpu_prices.csv"):
        same = row["generation"] == accelerator.generation and row["region"] == region_of(zone)
        if not same or row["basis_type"].endswith("-32") is not pods or not row[column]:
            continue
        if row["zone"] == zone:
            return float(row[column])
        best = float(row[column]) if best is None else best
    return best


@cache
def vm_types(region: str) -> Mapping[str, VmType]:
    """
    Return the machine types of *region*, by name.

    A region without rows offers the types of us-central1 at unknown prices; us-central2 no e2, of which there
    is no certain record (docs/facts.md 2.3).
    """
    known = _priced_types(region)
    lacking = "e2-" if region == "us-central2" else "-"
    unpriced = [one for one in _priced_types("us-central1").values() if not one.name.startswith(lacking)]
    return known or {one.name: replace(one, on_demand=None, spot=None) for one in unpriced}


def _priced_types(region: str) -> dict[str, VmType]:
    found = [row for row in rows("vm_prices.csv") if row["kind"] == "vm" and row["region"] == region]
    return {
        row["item"]: VmType(
            row["item"],
            float(row["vcpus"]),
            float(row["mem_gib"]),
            float(row["on_demand_usd"]) if row["on_demand_usd"] else None,
            float(row["spot_usd"]) if row["spot_usd"] else None,
        )
        for row in found
    }


@cache
def disk_price(disk_type: str, region: str) -> float | None:
    """Return USD per GiB-month, None if the table has no such disk in the region."""
    for row in rows("vm_prices.csv"):
        if row["kind"] == "disk" and row["item"] == disk_type and row["region"] == region:
            return float(row["on_demand_usd"])
    return None


@cache
def regions() -> tuple[str, ...]:
    return tuple(sorted({region_of(zone) for zone in zones()}))


@cache
def zones() -> tuple[str, ...]:
    names = {row["zone"] for row in rows("tpu_zones.csv")} | {row["zone"] for row in rows("tpu_prices.csv")}
    return tuple(sorted(name for name in names if name))


def region_of(zone: str) -> str:
    """Return the region of *zone* (`us-central1-ai1a` is in `us-central1`)."""
    return zone.rsplit("-", 1)[0]
