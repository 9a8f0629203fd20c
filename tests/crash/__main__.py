"""All crash points of all scenarios: `python -m tests.crash [--kills 2] [--real 1] [--jobs 2] [SCENARIO...]`."""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.crash.explore import CrashResult, abandoned, kills, singles
from tests.crash.scenarios import SCENARIOS
from tests.crash.sigkill import far, real_singles
from tests.kit.figures import record_figures
from tests.kit.workers import workers
from tests.memory_disk import MEMORY

ABOUT = (
    "A process is killed before and after each mutating call and each write of record, journal and lease. "
    "Another one goes on, on the same computer or on one that has to wait for the lease; see tests/crash. "
    "Written by `python -m tests.crash`."
)
SHARES = 3
"""Shares into which the points of a scenario are cut."""
SHARED = ("ways", "alone")
FAR = []
"""What keeps the process that forks, and that process; it ends with this one."""


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
    with workers(chosen.jobs) as pool:
        results = gathered(pool, wanted, chosen)
    wall = time.monotonic() - began
    record_figures("crash", "Crash points", ABOUT, {**figures(results), "Wall time": f"{wall:.0f} s"})
    found = [(name, kind) for name, kinds in results.items() for kind in kinds.values()]
    violations = [f"{name}: {text}" for name, kind in found for text in kind.violations]
    print(*violations, sep="\n")
    return 1 if violations else 0


def gathered(pool, wanted, chosen):
    """
    Return what was found, by scenario and by kind.

    What cannot be shared out comes first; the rest is cut into shares, so that no process waits long.
    """
    kinds = ["repeated", *(kind for kind in SHARED for _ in range(SHARES)), "real"]
    requests = [
        (SCENARIOS.index(scenario), kind, kinds[:at].count(kind), chosen.kills, chosen.real)
        for at, kind in enumerate(kinds)
        for scenario in wanted
        if kind != "alone" or scenario.expires
    ]
    results = {scenario.name: {} for scenario in wanted}
    for request, found in zip(requests, pool.map(one_share, *zip(*requests, strict=True)), strict=True):
        found_by_kind = results[SCENARIOS[request[0]].name]
        if request[1] in found_by_kind:
            found_by_kind[request[1]].add(found)
        else:
            found_by_kind[request[1]] = found
    return results


def one_share(number, kind, share, most, real):
    """Try a share of one scenario in one way; return what was found."""
    part = {"first": share, "every": SHARES}
    runs = {
        "ways": partial(singles, **part),
        "alone": partial(abandoned, **part),
        "repeated": partial(kills, most=most),
        "real": partial(really, every=real),
    }
    return _timed(runs[kind], SCENARIOS[number])


def really(folder, scenario, found, *, every):
    """Kill real processes; those that fork them are started once in each process."""
    if not FAR:
        FAR.append(ExitStack())
        FAR.append(FAR[0].enter_context(far()))
    real_singles(folder, scenario, found, FAR[1], every=every)


def _timed(run, scenario):
    """Make a run in a folder of its own; note its processor time, without that of other processes."""
    found, began = CrashResult(), time.process_time()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        run(Path(folder), scenario, found)
    found.seconds = time.process_time() - began
    return found


def figures(results):
    """Return the table for people."""
    rows = results.values()

    def total(kind, value):
        return sum(value(kinds[kind]) for kinds in rows if kind in kinds)

    def tried(kind):
        found = total(kind, lambda f: f.singles), total(kind, lambda f: f.states)
        return f"{found[0]:,}, from {found[1]:,} different states ({total(kind, lambda f: f.seconds):.0f} s)"

    most = max(len(kinds["repeated"].kills) for kinds in rows)
    later = total("repeated", lambda f: sum(f.kills[1:]) + f.more)
    states, seconds = total("repeated", lambda f: f.states), total("repeated", lambda f: f.seconds)
    return {
        "Scenarios": "; ".join(results),
        "Points of each": ", ".join(str(kinds["ways"].points) for kinds in rows),
        "Singles in each way to go on, here, elsewhere, with old lists (processor time)": tried("ways"),
        f"Kills after the first, up to {most} in a row": f"{later:,} ({seconds:.0f} s)",
        "- different states that they leave behind": f"{states:,}",
        "SIGKILL of a real process, over HTTP (server only)": (
            f"{total('real', lambda f: f.singles):,} ({total('real', lambda f: f.seconds):.0f} s)"
        ),
        "No later command: the bill stops": tried("alone"),
        "Violations of I1 to I8": sum(len(f.violations) for kinds in rows for f in kinds.values()),
    }


if __name__ == "__main__":
    sys.exit(main())
