"""
Long and wide runs: `python -m tests.simulation.wide --seeds 0:50 --jobs 2`, or one seed with `--trace FILE`.

A hundred deployments of one TPU each share a project, its quota and three zones for thirty virtual days.
That takes from two minutes to three hours of CPU a seed, by its faults. With `--shape ci` even seeds are wide
(24 TPUs, a day), odd ones long (3 TPUs, 30 days).
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace

from orchestrator.engine.reconcile.artifacts import agent_file, bundle_file
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT
from tests.kit.figures import commit, record_figures
from tests.kit.workers import workers
from tests.memory_disk import MEMORY
from tests.simulation import invariants
from tests.simulation.draw import JobCase, Rates
from tests.simulation.invariants import SETTLE, Violation
from tests.simulation.machine_faults import MachineFaults
from tests.simulation.run import collecting_at_the_end
from tests.simulation.simulation import CONTENT, DIGEST
from tests.simulation.wide_checks import WideChecks
from tests.simulation.wide_loop import DAY, Watchers
from tests.simulation.wide_simulation import WideSimulation

ZONES = ("us-central1-b", "us-central1-c", "us-central1-f")
QUOTA = "TPUV2sPreemptiblePerProjectPerZoneForTPUAPI"
HOUR = 3600.0
TPUS, DAYS = 100, 30.0
SHAPES = {"full": ((TPUS, DAYS),), "ci": ((24, 1.0), (3, DAYS))}
TITLES = {"full": ("wide-full", "Runs that are long and wide"), "ci": ("wide", "Long and wide runs")}
"""The part of docs/reliability.md of each shape, and its title."""
CREATE = 400.0
"""Seconds that a create, the boot and the start of the job take at most in a calm time."""
HOLDS = 720.0
"""Seconds for which the desired state must last to count."""
DOWNS = 5
"""Deployments that are taken down at the end, to prove that nothing is left of them."""


@dataclass(frozen=True)
class WideDeployment:
    """One deployment of a wide run; *ttl_ends* says that its time to live ends within the run."""

    name: str
    spec: dict = field(hash=False)
    job: JobCase
    ttl_ends: bool


@dataclass(frozen=True)
class WideCase:
    """One wide run."""

    seed: int
    days: float
    quotas: dict = field(hash=False)
    deployments: tuple[WideDeployment, ...]
    rates: Rates


@dataclass
class WideRun:
    """What came of it. *violation* is empty when all invariants held."""

    seed: int
    tpus: int
    asked: float
    violation: str = ""
    days: float = 0.0
    tpu_days: float = 0.0
    seconds: float = 0.0
    passes: int = 0
    calls: int = 0
    settle: float = 0.0
    digest: str = ""
    events: Counter = field(default_factory=Counter)


def draw(seed, tpus=TPUS, days=DAYS):
    """Return the case of *seed*."""
    r = Random(f"wide case {seed}")
    deployments = tuple(_deployment(r, f"w{n}", days) for n in range(tpus))
    # Cores: all zones together have room for everybody, but not each zone.
    quotas = {(QUOTA, zone): 8 * (tpus * 2 // 5 + 1) for zone in ZONES} if r.random() < 0.3 else {}

    def some(most, share=0.6):
        return r.uniform(0, most) if r.random() < share else 0.0

    rates = Rates(
        api_error=some(0.3) * r.choice((0.3, 1.0)), lost_answer=some(0.1), slow=some(0.05),
        stuck=some(0.03), stale=some(0.1), truncated=some(0.1), kill=some(0.03),
        preemption=0.1 * 40 ** r.random() / 24, trouble=some(0.5) / 24,
    )  # fmt: skip
    return WideCase(seed, days, quotas, deployments, rates)


def _deployment(r, name, days):
    zones = r.sample(ZONES, r.choice((1, 2, 3, 3, 3)))
    ttl_ends = r.random() < 0.05
    spec = {
        "name": name, "tpu__type": "v2-8", "tpu__runtime": "tpu-ubuntu2204-base", "tpu__zones": zones,
        "watch__poll": f"{r.randint(60, 300)}s", "job__failures": r.randint(2, 5),
        "watch__ttl": f"{max(1, int(days * r.uniform(0.3, 0.9) * 24))}h" if ttl_ends else "100d",
    }  # fmt: skip
    vm = r.choices(("none", "spot", "on-demand"), (80, 10, 10))[0]
    spec.update({"vm": "none"} if vm == "none" else {"vm__spot": vm == "spot"})
    if r.random() < 0.1:
        spec["watch__budget_usd"] = round(r.uniform(1.0, 25.0 * days), 2)
    step = r.uniform(5, 60)
    target = None if r.random() < 0.7 else int(days * DAY * r.uniform(0.2, 1.2) / step)
    job = JobCase(step, r.uniform(2, 8) * HOUR, target, r.choice((0.0, 0.0, 0.01)), False)
    return WideDeployment(name, spec, job, ttl_ends)


class WideFaults(MachineFaults):
    """Faults that are news for the controller concerned."""

    def _say(self, what, about=""):
        super()._say(what, about)
        self.simulation.notify_controller(about)

    def _heal(self, node, epoch):
        super()._heal(node, epoch)
        self.simulation.notify_controller(node.name)

    def _recover(self, key):
        super()._recover(key)
        self.simulation.notify_controller(key[1])


@collecting_at_the_end()
def simulate(seed, tpus=TPUS, days=DAYS, trace=lambda line: None):
    """Simulate the wide run of *seed*."""
    began, run, digest = time.process_time(), WideRun(seed, tpus, days), hashlib.sha256()

    def say(line):
        digest.update(line.encode() + b"\n")
        trace(line)

    simulation = WideSimulation(draw(seed, tpus, days), say)
    simulation.bundles = _bundles()
    with simulation.running():
        try:
            WideRunParts(simulation, run).run()
        except Violation as broken:
            run.violation = str(broken)
        except Exception:  # a crash of the product is a violation too
            run.violation = traceback.format_exc()
    run.violation = simulation.own_fault or run.violation
    shutil.rmtree(simulation.bundles)
    run.days = (simulation.now() - simulation.start) / DAY
    run.tpu_days = sum(line.seconds for line in simulation.cloud.bill() if line.kind == "tpu") / DAY
    run.events.update(simulation.events)
    run.events.update(simulation.network.faults)
    run.calls, run.digest = sum(simulation.cloud.calls.values()), digest.hexdigest()
    run.seconds = time.process_time() - began
    return run


def _bundles():
    folder = Path(tempfile.mkdtemp(prefix="tpuctl-wide-", dir=MEMORY))
    for name, path in (("bundle", bundle_file), ("agent", agent_file)):
        place = path(folder, DIGEST[name])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(CONTENT[name])
    return folder


class WideRunParts:
    """The parts of a wide run."""

    def __init__(self, simulation, run):
        self.simulation, self.result = simulation, run
        self.checks = WideChecks(simulation)
        for one in simulation.case.deployments:
            failures = simulation.specs[one.name].job.failures
            simulation.machines.jobs[one.name] = SimpleNamespace(**vars(one.job), failures=failures)
        self.loops = {one.name: Watchers(simulation, one, self.checks) for one in simulation.case.deployments}
        simulation.news = self._news

    def _news(self, deployment):
        self.checks.note(deployment)
        self.loops[deployment].news()

    def run(self):
        simulation, r = self.simulation, self.simulation.random
        for loop in self.loops.values():
            simulation.scheduler.after(r.uniform(0, HOUR), loop.start)
        WideFaults(simulation)
        try:
            simulation.run_until(simulation.start + simulation.case.days * DAY)
            self._calm()
            self._quiet_day()
            self._downs()
            self.checks.all_over(self.loops.values())
        finally:
            self.result.passes = sum(loop.passes for loop in self.loops.values())

    def _calm(self):
        """End all faults and wait for the desired state."""
        simulation = self.simulation
        simulation.say("calm")
        simulation.quiet = simulation.network.quiet = True
        simulation.machines.unreachable.clear()
        for gang in simulation.machines.gangs.values():
            gang.silent = False
        simulation.cloud.kernel.settings = replace(
            simulation.cloud.kernel.settings, stockouts=frozenset(), quotas={}
        )
        for loop in self.loops.values():
            loop.news()
        began, settled = simulation.now(), None
        bound = SETTLE + CREATE + CREATE_TIMEOUT
        while settled is None or simulation.now() - settled < HOLDS:
            violations = [p for p in map(self.checks.unsettled, self.loops.values()) if p]
            if not violations:
                settled = simulation.now() if settled is None else settled
            elif simulation.now() - began > bound:
                raise Violation(f"I4 not settled {bound / 60:.0f} min after the last fault: {violations}")
            else:
                settled = None
            simulation.run_until(simulation.now() + 60)
        self.result.settle = settled - began

    def _quiet_day(self):
        """Let a day pass in which nothing happens."""
        simulation = self.simulation
        for gang in simulation.machines.gangs.values():
            gang.rest()
        simulation.run_until(simulation.now() + 300)
        before = Counter(self.checks.mutations)
        simulation.say("a quiet day")
        simulation.run_until(simulation.now() + DAY)
        for name in self.checks.mutations - before:
            loop = self.loops[name]
            if loop.spec.watch.budget_usd is None and not loop.case.ttl_ends:
                raise Violation(f"I4 {name}: {invariants.i4_stable({name: self.checks.mutations[name]})}")

    def _downs(self):
        """Take some down; all that is left of them is their data."""
        running = [loop for loop in self.loops.values() if not loop.ended]
        for loop in running[:DOWNS]:
            self.checks.demand("I1", "; ".join(map(str, loop.take_down())), loop.name)
            self.checks.demand("I1", invariants.i1_gone(self.checks.live(loop.name)), loop.name)


def figures(runs, wall):
    """Return the figures of many wide runs as pairs of name and value."""
    events = sum((run.events for run in runs), Counter())
    bad = [str(run.seed) for run in runs if run.violation]
    each = sum(run.seconds for run in runs) / max(1, len(runs))
    return {
        "Seeds, each a long or wide run through the official clients": f"{len(runs):,}",
        "Violations of I1 to I8": f"{len(bad)}" + (f" (seeds {', '.join(bad[:40])})" if bad else ""),
        "TPUs at a time (most), days of a run (longest)": (
            f"{max(run.tpus for run in runs)}, {max(run.asked for run in runs):g}"
        ),
        "Virtual days, TPU days": f"{sum(x.days for x in runs):,.0f}, {sum(x.tpu_days for x in runs):,.0f}",
        "Passes of the loop, calls": f"{sum(x.passes for x in runs):,}, {sum(x.calls for x in runs):,}",
        "Faults injected": f"{sum(events.values()):,}",
        **{f"- {name.replace('_', ' ')}": f"{count:,}" for name, count in events.most_common()},
        "Wall time, processor time of a seed": f"{wall:.0f} s, {each:.2f} s",
    }


def shaped(seed, shape="full"):
    """Simulate the run of *seed* in the size that the shape has for it."""
    sizes = SHAPES[shape]
    return simulate(seed, *sizes[seed % len(sizes)])


def main():
    """Read the command line and simulate."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.wide")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--seeds", help="FIRST:LAST, the last one not included")
    parser.add_argument("--shape", choices=SHAPES, default="full")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tpus", type=int, default=TPUS)
    parser.add_argument("--days", type=float, default=DAYS)
    chosen = parser.parse_args()
    began = time.monotonic()
    if chosen.seeds:
        seeds = range(*map(int, chosen.seeds.split(":")))
        with workers(chosen.jobs) as pool:
            runs = list(pool.map(partial(shaped, shape=chosen.shape), seeds))
    else:
        with (chosen.trace or Path("/dev/null")).open("w") as file:
            runs = [simulate(chosen.seed, chosen.tpus, chosen.days, lambda line: print(line, file=file))]
    for run in runs:
        if run.violation:
            print(f"wide seed {run.seed} at {commit()}: {run.violation}")
            size = f"--tpus {run.tpus} --days {run.asked:g}"
            print(f"  replay: python -m tests.simulation.wide {run.seed} {size} --trace trace.txt")
    about = f"Written by `python -m tests.simulation.wide {' '.join(sys.argv[1:])}`."
    record_figures(*TITLES[chosen.shape], about, figures(runs, time.monotonic() - began))
    return 1 if any(run.violation for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
