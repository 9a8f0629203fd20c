"""
A spot market that was recorded: which zone had capacity when, and what it cost.

All files come down to one value. There is a trap: some packs write 1 for "preempted", others 1 for
"available", others the number of machines that were up. Each reader says what its format means; in a
`Trace` True is up.
"""

import csv
import gzip
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "traces"


@dataclass(frozen=True)
class Trace:
    """Hold a market: `up[zone, tick]`, and `price[zone, tick]` in USD an hour where it was recorded."""

    name: str
    zones: tuple[str, ...]
    tick: float
    up: np.ndarray[Any, np.dtype[np.bool_]]
    price: np.ndarray[Any, np.dtype[np.float64]]
    on_demand: float = 3.06

    @property
    def seconds(self) -> float:
        """Return how long the record is."""
        return self.tick * int(self.up.shape[1])

    def cut(self, first: int, ticks: int) -> "Trace":
        """Return *ticks* ticks of the record, from tick *first* on."""
        part = slice(first, first + ticks)
        return Trace(self.name, self.zones, self.tick, self.up[:, part], self.price[:, part], self.on_demand)

    def only(self, *zones: int) -> "Trace":
        """Return the record of some zones, by index."""
        names = tuple(self.zones[z] for z in zones)
        rows = list(zones)
        return Trace(self.name, names, self.tick, self.up[rows], self.price[rows], self.on_demand)

    def coarse(self, ticks: int) -> "Trace":
        """Return the record with ticks that are *ticks* times as long; up is what was up all that time."""
        whole = int(self.up.shape[1]) // ticks * ticks
        shape = (len(self.zones), whole // ticks, ticks)
        up = np.asarray(self.up[:, :whole].reshape(shape).all(axis=2), dtype=bool)
        price = self.price[:, :whole].reshape(shape).mean(axis=2)
        return Trace(self.name, self.zones, self.tick * ticks, up, price, self.on_demand)


def make(name: str, tick: float, zones: dict[str, list[bool]], prices: dict[str, list[float]]) -> Trace:
    """Return the trace of some series, cut to the shortest of them; a zone without prices costs 1 USD an hour."""
    ticks = min(len(series) for series in zones.values())
    up = np.array([series[:ticks] for series in zones.values()], dtype=bool)
    price = np.array([prices.get(zone, [1.0] * ticks)[:ticks] for zone in zones], dtype=float)
    return Trace(name, tuple(zones), tick, up, price)


def read_csv(path: Path) -> Trace:
    """
    Read a user's own record: a column of dates or seconds, then one for each zone, 1 where it had capacity.

    A column `preempted:ZONE` holds the opposite, and `price:ZONE` its price in USD an hour.
    """
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    if len(rows) < 2 or not rows[0]:
        raise ValueError(f"{path} needs a header and at least two rows")
    clock, *columns = rows[0]
    zones: dict[str, list[bool]] = {}
    prices: dict[str, list[float]] = {}
    for column in columns:
        words = [row[column].strip() for row in rows]
        kind, _, zone = column.rpartition(":")
        if kind == "price":
            prices[zone] = [float(word) for word in words]
        else:
            zones[zone] = [_bit(word, path) ^ (kind == "preempted") for word in words]
    if not zones:
        raise ValueError(f"{path} has no column of a zone")
    tick = (_seconds(rows[-1][clock]) - _seconds(rows[0][clock])) / (len(rows) - 1)
    if tick <= 0:
        raise ValueError(f"{path}: the times of column {clock} do not grow")
    return make(path.stem, tick, zones, prices)


def _bit(word: str, path: Path) -> bool:
    if word not in {"0", "1"}:
        raise ValueError(f"{path} holds {word!r} where 0 or 1 is expected")
    return word == "1"


def _seconds(word: str) -> float:
    """Return a time of a CSV in seconds: a number, or a date with a time."""
    try:
        return float(word)
    except ValueError:
        return datetime.fromisoformat(word).timestamp()


def v100() -> Trace:
    """Read nine AWS zones: a CSV for each, in which 1 is available, and a price for each tick."""
    zones: dict[str, list[bool]] = {}
    with tarfile.open(FOLDER / "aws_v100_9zones_availability_csv.tar.xz") as pack:
        for name in sorted(pack.getnames()):
            lines = pack.extractfile(name).read().decode().split("\n")[1:]  # type: ignore[union-attr]
            rows = [line.strip().split(",") for line in lines if line]
            zones[name.split("_")[0]] = [bit == "1" for _, bit in rows]
    tick = (_seconds(rows[-1][0]) - _seconds(rows[0][0])) / (len(rows) - 1)
    recorded = json.loads(gzip.decompress((FOLDER / "aws_v100_spot_prices.json.gz").read_bytes()))
    return make("V100 on AWS", tick, zones, {name.split("_")[0]: row for name, row in recorded.items()})


def gang(nodes: int) -> Trace:
    """Read the three AWS zones in which *nodes* machines were held or probed; up is when all of them were."""
    zones = {}
    tick = 0.0
    for path in sorted(FOLDER.glob(f"aws_v100_{nodes}-nodes*.json")):
        body = json.loads(path.read_text())
        zones[path.stem.rsplit("_", 1)[1]] = [count == nodes for count in body["data"]]
        tick = float(body["metadata"]["gap_seconds"])
    return make(f"{nodes} V100 machines at once on AWS", tick, zones, {})


def pair(kind: str) -> Trace:
    """Read two AWS zones of 2022 for a type and number of GPUs; in this file 1 is available."""
    body = json.loads(gzip.decompress((FOLDER / "aws_2zones_k80_v100_2022-10-26.json.gz").read_bytes()))
    series = {name.split("_")[0]: bits for name, bits in body["series"].items() if name.endswith(f"_{kind}")}
    gpu, count = kind.split("_")
    title = f"{count} {gpu.upper()} on AWS, 2022"
    return make(title, body["gap_seconds"], {z: [b == "1" for b in bits] for z, bits in series.items()}, {})


def lives() -> list[float]:
    """Return how long single machines of two AWS groups lived, in seconds; one that never went lived to the end."""
    found = []
    for kind in ("g4dn", "p3"):
        rows = [row.split(",") for row in (FOLDER / f"aws_{kind}_add_remove.csv").read_text().split()]
        end = max(float(at) for at, _, _ in rows) / 1000
        born: dict[str, float] = {}
        for at, verb, node in rows:
            if verb == "add":
                born[node] = float(at) / 1000
            else:
                found.append(float(at) / 1000 - born.pop(node))
        found += [end - at for at in born.values()]
    return sorted(life for life in found if life > 0)


SETS: dict[str, Callable[[], Trace]] = {
    "v100": v100,
    "west": lambda: v100().only(6, 7, 8),
    "gang4": lambda: gang(4),
    "gang16": lambda: gang(16),
    "k80": lambda: pair("k80_1"),
    "k80x8": lambda: pair("k80_8"),
    "v100pair": lambda: pair("v100_1"),
    "v100x8": lambda: pair("v100_8"),
}
"""The recorded sets by name: another one is a file in the folder and a line here."""
