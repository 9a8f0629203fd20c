"""
Replay all policies over all records of spot markets.

Without options: print the tables. A record of your own is a CSV: see benchmarks/traces/SOURCE.md.
"""

import argparse
import os
import resource
import time
from pathlib import Path

from benchmarks.policies import report, scenes
from benchmarks.policies.replay import play
from benchmarks.policies.table import in_full
from benchmarks.policies.trace import read_csv


def main() -> None:
    """Run the benchmark, print its tables, and with --write put them into docs/performance.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="replay a CSV of your own")
    parser.add_argument("--full", action="store_true", help="play every record from begin to end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and docs/policies.svg"
    )
    words = parser.parse_args()
    if words.trace:
        (outcome,) = play([scenes.own_scene(read_csv(words.trace))], words.jobs)
        print(in_full(outcome))
        return
    began = time.monotonic()
    run = report.measure(None if words.full else scenes.HOURS, words.jobs)
    print(report.text(run))
    print(f"\nWall time: {time.monotonic() - began:.0f} s with {words.jobs} processes")
    if words.write:
        report.write(run, time.monotonic() - began, computing(), words.jobs)


def computing() -> float:
    """Return the seconds of computing so far, here and in all processes that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
