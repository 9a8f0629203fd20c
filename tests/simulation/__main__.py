"""Replay one seed, or simulate many: `python -m tests.simulation 42 --trace FILE`, `--seeds 0:1000 --jobs 2`."""

import argparse
import gc
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.kit.workers import workers
from tests.simulation.report import replay, report
from tests.simulation.run import simulate


def main():
    """Read the command line and simulate."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--trace", type=Path, help="write what happens, a line for each call and event")
    parser.add_argument("--seeds", help="FIRST:LAST, the last one not included")
    parser.add_argument("--jobs", type=int, default=1, help="processes to simulate in")
    chosen = parser.parse_args()
    if chosen.seeds is None and chosen.seed is None:
        parser.error("name a seed, or --seeds FIRST:LAST")
    began = time.monotonic()
    runs = list(_one(chosen) if chosen.seeds is None else _many(chosen))
    report(runs, time.monotonic() - began)
    return 1 if any(run.violation for run in runs) else 0


def _one(chosen):
    with ExitStack() as stack:
        trace = None if chosen.trace is None else stack.enter_context(chosen.trace.open("w"))
        yield _reported(simulate(chosen.seed, trace and (lambda line: trace.write(line + "\n"))))


def _many(chosen):
    seeds = range(*map(int, chosen.seeds.split(":")))
    with workers(chosen.jobs, gc.disable) as pool:
        for run in pool.map(simulate, seeds, chunksize=4):
            yield _reported(run)


def _reported(run):
    if run.violation:
        print(replay(run), flush=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
