"""
Switch each mechanism off, one at a time: a test or a run must fail then, or the tests prove nothing.

`python -m tests.simulation.mutants [PART OF A NAME] [--jobs N] [--runs N]` prints what was detected, and leaves
with the number of mechanisms whose absence nobody noticed. With all mechanisms on, the same tests and runs pass,
which is looked at first. A test that hangs without its mechanism has noticed it too.
"""

import argparse
import multiprocessing
import os
import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from multiprocessing.connection import wait
from pathlib import Path
from unittest.mock import patch

import pytest

import tests.engine.engine_lab  # noqa: F401 - imported once, before the children are forked
from tests.kit.figures import record_figures
from tests.simulation.fleet_switches import SWITCHES as FLEETS
from tests.simulation.google_failures import GOOGLE_FAILURES
from tests.simulation.run import simulate
from tests.simulation.switches import MECHANISMS

ROOT = Path(__file__).parents[2]
SWITCHES = {**MECHANISMS, **GOOGLE_FAILURES, **FLEETS}
RUN_TIMEOUT = 10.0
"""Seconds that a run takes at most, mostly waiting for its turn on the processor."""
PYTEST = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header")
FAILED = 1
"""What pytest leaves with when a test failed; other numbers mean that it ran none."""


def _tests_fail(names):
    """Return the first test that fails, empty when all pass."""
    reported = _Failures()
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = int(pytest.main([*PYTEST, *names], plugins=[reported]))
    if code not in (0, FAILED):
        raise ValueError(f"pytest leaves with {code} for {', '.join(names)}")
    return f"{reported.first} fails" if code else ""


class _Failures:
    """Remember the first test that failed."""

    first = ""

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.first:
            self.first = report.nodeid.partition("::")[2]


def _run_breaks(invariant, seeds):
    """Return which run breaks the invariant, empty when none does, and its seed."""
    for count, seed in enumerate(seeds, 1):
        violation = simulate(seed).violation
        if violation.startswith(invariant):
            moved = "" if count == 1 else f" (found after {count}: record this seed)"
            return f"seed {seed} breaks {violation.partition(':')[0][:60]}{moved}", seed
    return "", None


def _without(name, runs):
    """Return what notices that one mechanism is off, and the seed if it was a run."""
    switch = SWITCHES[name]
    with ExitStack() as stack:
        for where, what, wrong in switch.patches:
            stack.enter_context(patch.object(where, what, wrong))
        if switch.tests:
            return _tests_fail(switch.tests), None
        seeds = [switch.seed, *(seed for seed in range(runs) if seed != switch.seed)]
        return _run_breaks(switch.invariant, seeds[:runs])


def _child(name, runs, answer):
    """Send what bit, and what went wrong; without a name, what fails with all mechanisms on."""
    if not name:
        answer.send(
            ("", _tests_fail(list(dict.fromkeys(test for s in SWITCHES.values() for test in s.tests))))
        )
        return
    found, seed = _without(name, runs)
    if seed is not None and simulate(seed).violation:
        answer.send(("", f"seed {seed} breaks with the mechanism on, too"))
    else:
        answer.send((found, ""))


class Mutant:
    """One forked child, which may hang without harm."""

    def __init__(self, name, runs):
        context = multiprocessing.get_context("fork")
        self.name, self.began = name, time.monotonic()
        self.answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(name, runs, theirs))
        self._process.start()
        theirs.close()
        self._tested = bool(name) and bool(SWITCHES[name].tests)
        self._end = self.began + (SWITCHES[name].timeout if self._tested else RUN_TIMEOUT * max(runs, 30))

    @property
    def over(self):
        return time.monotonic() > self._end

    def result(self):
        """Return what bit and what went wrong; a child that hangs is ended."""
        found = ("hangs", "") if self._tested else ("", "it did not end")
        if self.answer.poll():
            try:
                found = self.answer.recv()
            except EOFError:
                found = ("", "the child died")
        self._process.kill()
        self._process.join()
        return found


def try_mutants(names, jobs=1, runs=40):
    """Yield (name, what bit, what went wrong, seconds) for each mechanism, *jobs* at a time."""
    waiting, running = list(names), []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Mutant(waiting.pop(0), runs))
        wait([one.answer for one in running], timeout=1.0)
        for one in [one for one in running if one.answer.poll() or one.over]:
            running.remove(one)
            yield (one.name, *one.result(), time.monotonic() - one.began)


def main():
    """Try all, print, and return how many mechanisms went unnoticed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=int, default=40)
    asked = parser.parse_args()
    os.chdir(ROOT)
    names, began = [name for name in SWITCHES if asked.part in name], time.monotonic()
    for _, _, broken, _ in () if asked.part else try_mutants([""]):
        if broken:
            print(f"with all mechanisms on: {broken}")
            return len(names)
    detected = 0
    for name, what, violation, seconds in try_mutants(names, asked.jobs, asked.runs):
        detected += bool(what)
        print(f"without {name}: {what or 'UNNOTICED ' + violation} ({seconds:.1f} s)", flush=True)
    used = sum(os.times()[:4])
    record_figures(
        "mutants",
        "Mutants",
        "Each mechanism is switched off alone; a test of the normal suite or a simulated run has to fail "
        "then, and passes with it on: `python -m tests.simulation.mutants`.",
        {
            "switched off, detected": f"{detected} of {len(names)}",
            "mechanisms": ", ".join(sorted({n.split()[0] for n in names}, key=lambda m: (m[0], int(m[1:])))),
            "wall time, processor time": f"{time.monotonic() - began:.0f} s, {used:.0f} s",
        },
    )
    return len(names) - detected


if __name__ == "__main__":
    sys.exit(main())
