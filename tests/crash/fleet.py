"""
Crash points of fleet commands: `python -m tests.crash.fleet [--every 1] [--jobs 2] [SCENARIO...]`.

A command is killed before and after every step: each mutating call of an API, each write to bucket or disk, each
word to Slurm and each way over SSH. At a step this process is forked: the child's command dies there, and somebody
goes on with the state that it has left; then the files are put back, and the command goes on to its next step.
"""

import argparse
import fcntl
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.crash.fleet_scenarios import SCENARIOS, FleetCrashLab
from tests.kit.cloud import VirtualCloud
from tests.kit.figures import record_figures
from tests.kit.workers import workers
from tests.memory_disk import MEMORY
from tests.simulation.invariants import Violation

ABOUT = (
    "A command of a fleet is killed at its steps: API calls, writes to bucket and disk, words to Slurm, SSH. "
    "Whoever goes on types it again, here or on another computer, or `down`; then all tasks end once, and `down` "
    "leaves nothing (F1, F15). See tests/crash/fleet.py."
)
SHARES = 4
"""Shares into which the points of a scenario are cut when all are tried."""
FEW = 4
"""No scenario has fewer points."""
OPEN = Path("/proc/self/fd")
"""The files that this process has open; a link that is gone meanwhile was the listing itself."""


@dataclass
class FleetCrashResult:
    """Count the steps of one scenario, how many kills were tried, by the way it went on, and what went wrong."""

    steps: int = 0
    tried: Counter = field(default_factory=Counter)
    violations: list = field(default_factory=list)
    seconds: float = 0.0


class Points:
    """Be asked at each step of a command whether it is killed there: in a child yes, here never."""

    def __init__(self, cloud, wanted):
        self._clock, self._folder, self._wanted, self.steps, self.found = (
            cloud.clock,
            cloud.folder,
            wanted,
            [],
            [],
        )
        self._done = None
        self.what, self.answer = "", None

    def __call__(self, what, when):
        if self.answer is not None:
            return False
        # Right after one step is right before the next: the same state, unless time has passed.
        same, self._done = when == "before" and self._done == self._clock.monotonic(), None
        if when == "after":
            self._done = self._clock.monotonic()
        if same:
            return False
        number, self.what = len(self.steps), f"{when} {what}"
        self.steps.append(self.what)
        for way in self._wanted(number):
            held, locks = _files(self._folder), _locks(self._folder)
            reported, answer = os.pipe()
            # A lock belongs to the open file, which the child has too: a dead process holds none.
            _lock_all(locks, fcntl.LOCK_UN)
            child = os.fork()
            if not child:
                self.answer, self.way = answer, way
                return True
            os.close(answer)
            with os.fdopen(reported, "rb") as end:
                said = end.read()
            os.waitpid(child, 0)
            _put_back(self._folder, held)
            _lock_all(locks, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.found.append((way, pickle.loads(said) if said else [f"{self.what}: the child died"]))  # noqa: S301 - a child's
        return False

    def report(self, violations):
        """Report to the parent what was found, and end."""
        os.write(self.answer, pickle.dumps(violations))
        os._exit(0)


def explore(scenario, folder, *, first=0, every=1, ways=None):
    """
    Kill at each of *every* so many steps of a scenario from the *first* on, and go on in each of *ways*.

    Without *ways* one of the scenario's is taken at each point, in turn.
    """
    chosen = scenario.ways if ways is None else ways
    found, began = FleetCrashResult(), sum(os.times()[:4])

    def wanted(number):
        if number % every != first % every:
            return ()
        return chosen if ways is not None else (chosen[number // every % len(chosen)],)

    with VirtualCloud(folder).open() as cloud:
        lab = FleetCrashLab(cloud, scenario)
        scenario.before(lab)
        points = Points(cloud, wanted)
        try:
            scenario.go(lab, kill=points)
            lab.finish(scenario)
        except Violation as violation:
            found.violations.append(f"{scenario.name}, killed {points.what or 'nowhere'}: {violation}")
        except Exception:  # whatever it is, it is reported
            found.violations.append(f"{scenario.name}, killed {points.what}:\n{traceback.format_exc()}")
        if points.answer is not None:
            points.report(found.violations)
    found.steps = len(points.steps)
    for way, violations in points.found:
        found.tried[way] += 1
        found.violations += [f"{violation} ({way})" for violation in violations]
    # Of the children too: they have been waited for.
    found.seconds = sum(os.times()[:4]) - began
    return found


def _locks(folder):
    """Return the descriptors by which this process holds locks in a folder."""
    places = {number: OPEN / str(number) for number in (int(entry.name) for entry in OPEN.iterdir())}
    return [
        number for number, place in places.items() if place.is_symlink() and _inside(place.readlink(), folder)
    ]


def _inside(path, folder):
    return path.name == "lock" and path.is_relative_to(folder)


def _lock_all(descriptors, how):
    for descriptor in descriptors:
        fcntl.flock(descriptor, how)


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _put_back(folder, held):
    """Only what differs is written: locks are held on files, not on their names."""
    for path in [path for path in folder.rglob("*") if path.is_file() and path not in held]:
        path.unlink()
    for path, data in held.items():
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _share(order, *, every, shares):
    number, share = order
    scenario = SCENARIOS[number]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        # Some of each scenario, however few steps it has; in other scenarios at other places.
        return explore(scenario, Path(folder), first=share + number % FEW, every=every)


def main():
    """Read the command line, try all, print the figures and what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fleet")
    parser.add_argument("scenarios", nargs="*", help="names to begin with; all when left out")
    parser.add_argument("--every", type=int, default=1, help="try each so manyth step")
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    wanted = [n for n, s in enumerate(SCENARIOS) if s.name.startswith(tuple(chosen.scenarios or [""]))]
    shares = max(1, SHARES // chosen.every)
    orders = [(number, share) for share in range(shares) for number in wanted]
    results, began = {SCENARIOS[number].name: FleetCrashResult() for number in wanted}, time.monotonic()
    with workers(chosen.jobs) as pool:
        call = partial(_share, every=chosen.every * shares, shares=shares)
        for (number, _), found in zip(orders, pool.map(call, orders), strict=True):
            whole = results[SCENARIOS[number].name]
            whole.steps, whole.seconds = found.steps, whole.seconds + found.seconds
            whole.tried += found.tried
            whole.violations += found.violations
            print(*found.violations, sep="\n", end="\n" if found.violations else "", flush=True)
    record_figures("fleet-crash", "Crash points of fleets", f"{ABOUT} Written by `{_typed()}`.",
         {**figures(results), "Wall time": f"{time.monotonic() - began:.0f} s"})  # fmt: skip
    return 1 if any(found.violations for found in results.values()) else 0


def _typed():
    return " ".join(["python -m tests.crash.fleet", *sys.argv[1:]])


def figures(results):
    """Return the table for people."""
    tried = sum((found.tried for found in results.values()), Counter())
    return {
        "Commands": "; ".join(results),
        "Steps of each": ", ".join(str(found.steps) for found in results.values()),
        "Kills": f"{tried.total():,}",
        **{f"- {way}": f"{count:,}" for way, count in sorted(tried.items())},
        "Violations": sum(len(found.violations) for found in results.values()),
        "Processor time": f"{sum(found.seconds for found in results.values()):.0f} s",
    }


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
