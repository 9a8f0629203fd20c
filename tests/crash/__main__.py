"""
All crash points of all scenarios: `python -m tests.crash [--kills 2] [--real 1] [--jobs 2] [SCENARIO...]`.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.crash.explore import Found, abandoned, kills, singles
from tests.crash.scenarios import SCENARIOS
from tests.crash.sigkill import far, real_singles
from tests.figures import tell

ABOUT = (
    "A process is killed before and after each mutating call and each write of record, journal and lease, and "
    "another one goes on, on the same computer or on one that has to wait for the lease; see tests/crash. "
    "Written by `python -m tests.crash`."
)


def main():
    """Read the command line, try all, print the figures and what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("scenarios", nargs="*", help="names to begin with; all when left out")
    parser.add_argument("--kills", type=int, default=2, help="most kills in a row, in this process")
    parser.add_argument("--real", type=int, default=1, help="SIGKILL real processes at each so manyth point")
    parser.add_argument("--jobs", type=int, default=1, help="processes to share the scenarios")
    chosen = parser.parse_args()
    wanted = [s for s in SCENARIOS if not chosen.scenarios or s.name.startswith(tuple(chosen.scenarios))]
    began = time.monotonic()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        orders = [(SCENARIOS.index(s), chosen.kills, chosen.real) for s in wanted]
        # The longest first, so that none is left alone at the end.
        results = dict(
            zip((s.name for s in wanted), pool.map(everything, *zip(*orders, strict=True)), strict=True)
        )
    wall = time.monotonic() - began
    tell("crash", "Crash points", ABOUT, {**figures(results), "Wall time": f"{wall:.0f} s"})
    problems = [f"{name}: {text}" for name, (*_, found) in results.items() for text in found]
    print(*problems, sep="\n")
    return 1 if problems else 0


def everything(number, most, real):
    """Try one scenario in every way; return what was found by each, processor time included."""
    scenario, spent = SCENARIOS[number], Counter()

    def timed(name, run, **options):
        found, began = Found(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), scenario, found, **options)
        spent[name] = time.process_time() - began
        return found

    clients = timed("clients", singles, direct=False)
    alone = timed("alone", abandoned) if scenario.swept else Found()
    repeated = timed("repeated", kills, most=most)
    with far() as orders:
        killed = timed("killed", real_singles, orders=orders, every=real)
    problems = [text for found in (clients, alone, repeated, killed) for text in found.problems]
    return clients, alone, repeated, killed, spent, problems


def figures(results):
    """Return the table for people."""
    spent = sum((row[4] for row in results.values()), Counter())
    pairs = sum(sum(row[2].kills[1:]) + row[2].more for row in results.values())
    most = max(len(row[2].kills) for row in results.values())
    return {
        "Scenarios": ", ".join(results),
        "Points of each, through the official clients": ", ".join(str(row[0].points) for row in results.values()),
        "Singles, in each way to go on, on two computers": _count(row[0].singles for row in results.values()),
        f"Second kills after the first, up to {most} kills in a row": f"{pairs:,}",
        "- different worlds that these leave behind": _count(row[2].worlds for row in results.values()),
        "SIGKILL of a real process, over HTTP": _count(row[3].singles for row in results.values()),
        "Points at which nobody comes back, and the bill stops": _count(r[1].singles for r in results.values()),
        "Violations of I1 to I8": _count(len(row[5]) for row in results.values()),
        "Processor time: singles, pairs, nobody back": ", ".join(
            f"{spent[name]:.0f} s" for name in ("clients", "repeated", "alone")
        ),
    }  # fmt: skip


def _count(numbers):
    return f"{sum(numbers):,}"


if __name__ == "__main__":
    sys.exit(main())
