"""
A spot market that was recorded: which zone had capacity when, and what it cost.

All files come down to one value. There is a trap: some packs write 1 for "preempted", others 1 for
"available", others the number of machines that were up. Each reader says what its format means; in a
`Trace` True is up.
"""

import contextlib
import csv
import gzip
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
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

    def fine(self, parts: int) -> "Trace":
        """Return the record with each tick in *parts*, which are alike."""
        up, price = (np.repeat(rows, parts, axis=1) for rows in (self.up, self.price))
        return Trace(self.name, self.zones, self.tick / parts, up, price, self.on_demand)


def make(
    name: str,
    tick: float,
    zones: dict[str, list[bool]],
    prices: dict[str, list[float]],
    on_demand: float = 3.06,
) -> Trace:
    """Return the trace of some series, cut to the shortest of them; a zone without prices costs 1 USD an hour."""
    ticks = min(len(series) for series in zones.values())
    up = np.array([series[:ticks] for series in zones.values()], dtype=bool)
    price = np.array([prices.get(zone, [1.0] * ticks)[:ticks] for zone in zones], dtype=float)
    return Trace(name, tuple(zones), tick, up, price, on_demand)


class BadRecordError(ValueError):
    """Say what is wrong with a record, in which line and column of its file."""

    def __init__(self, path: Path, line: int, column: str, message: str) -> None:
        super().__init__(f"{path}:{line}, column {column}: {message}")


def read_csv(path: Path, *, gang: int = 1, on_demand: float = 3.06, fill: bool = False) -> Trace:
    """
    Read a user's own record: a column of dates or seconds, then one for each zone, 1 where it had capacity.

    With a *gang* of several the column has the number of machines that were up, and counts as up when all of
    them were. A column `preempted:ZONE` holds the opposite, and `price:ZONE` its price in USD an hour. Times
    are even steps; with *fill* a row that is missing is like the one before it.
    """
    with path.open(newline="") as handle:
        lines = list(csv.reader(handle))
    head, rows = (lines[0] if lines else []), [(n, row) for n, row in enumerate(lines[1:], 2) if row]
    if len(rows) < 2:
        raise BadRecordError(path, len(lines), head[0] if head else "1", "a header and two rows are needed")
    for line, row in rows:
        if len(row) != len(head):
            raise BadRecordError(
                path, line, head[min(len(row), len(head) - 1)], f"{len(row)} of {len(head)} cells"
            )
    repeated = next((name for i, name in enumerate(head) if name in head[:i]), None)
    if repeated is not None:
        raise BadRecordError(path, 1, repeated, "the name is there twice")
    times = [(line, _seconds(row[0], path, line, head[0])) for line, row in rows]
    tick, repeats = _steps(path, head[0], times, fill=fill)
    zones: dict[str, list[bool]] = {}
    prices: dict[str, list[float]] = {}
    for index, column in enumerate(head[1:], 1):
        cells = [(line, row[index].strip()) for line, row in rows]
        kind, _, zone = column.rpartition(":")
        if kind not in {"", "price", "preempted"}:
            raise BadRecordError(path, 1, column, "only price: and preempted: may stand before a zone")
        if kind == "price":
            found = [_number(word, path, line, column) for line, word in cells]
            prices[zone] = [usd for usd, times in zip(found, repeats, strict=True) for _ in range(times)]
        else:
            bits = [_up(word, gang, path, line, column) ^ (kind == "preempted") for line, word in cells]
            zones[zone] = [bit for bit, times in zip(bits, repeats, strict=True) for _ in range(times)]
    if not zones:
        raise BadRecordError(path, 1, head[-1], "there is no column of a zone")
    stray = next((zone for zone in prices if zone not in zones), None)
    if stray is not None:
        raise BadRecordError(path, 1, f"price:{stray}", "the zone has no column of its own")
    return make(path.stem, tick, zones, prices, on_demand)


def _steps(path: Path, column: str, times: list[tuple[int, float]], *, fill: bool) -> tuple[float, list[int]]:
    """Return the seconds of a step, and how many steps each row stands for."""
    steps = [later - at for (_, at), (_, later) in pairwise(times)]
    tick = median(steps)
    counts = []
    for (line, _), step in zip(times[1:], steps, strict=True):
        if step <= 0:
            raise BadRecordError(path, line, column, "the times do not grow")
        count = round(step / tick)
        # A logger drifts by some seconds; a row that is missing is another thing.
        if count < 1 or abs(step - count * tick) > 0.1 * tick:
            raise BadRecordError(
                path, line, column, f"{step:g} s after the row before, where {tick:g} s are usual"
            )
        if count > 1 and not fill:
            message = f"{count - 1} rows are missing before it; --fill repeats the last one"
            raise BadRecordError(path, line, column, message)
        counts.append(count)
    return tick, [*counts, 1]


def _up(word: str, gang: int, path: Path, line: int, column: str) -> bool:
    if gang > 1:
        return _number(word, path, line, column) >= gang
    if word not in {"0", "1"}:
        raise BadRecordError(path, line, column, f"{word!r} where 0 or 1 is expected")
    return word == "1"


def _number(word: str, path: Path, line: int, column: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise BadRecordError(path, line, column, f"{word!r} is not a number from 0") from None
    return found


def _seconds(word: str, path: Path, line: int, column: str) -> float:
    """Return a time of a CSV in seconds: a number, or a date with a time."""
    with contextlib.suppress(ValueError):
        return float(word)
    try:
        return datetime.fromisoformat(word.strip()).timestamp()
    except ValueError:
        raise BadRecordError(
            path, line, column, f"{word!r} is neither seconds nor a date with a time"
        ) from None


def read_lifetimes(path: Path) -> tuple[float, ...]:
    """Read how long machines lived: one number of seconds in each line."""
    lines = enumerate(path.read_text().splitlines(), 1)
    found = tuple(_number(word, path, line, "1") for line, word in lines if word.strip())
    if not found:
        raise BadRecordError(path, 1, "1", "there is no lifetime")
    return found


def v100() -> Trace:
    """Read nine AWS zones: a CSV for each, in which 1 is available, and a price for each tick."""
    zones: dict[str, list[bool]] = {}
    with tarfile.open(FOLDER / "aws_v100_9zones_availability_csv.tar.xz") as pack:
        for name in sorted(pack.getnames()):
            lines = pack.extractfile(name).read().decode().split("\n")[1:]  # type: ignore[union-attr]
            rows = [line.strip().split(",") for line in lines if line]
            zones[name.split("_")[0]] = [bit == "1" for _, bit in rows]
    first, last = (datetime.fromisoformat(rows[i][0]).timestamp() for i in (0, -1))
    tick = (last - first) / (len(rows) - 1)
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


def lifetimes() -> list[float]:
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
    return sorted(lifetime for lifetime in found if lifetime > 0)


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
