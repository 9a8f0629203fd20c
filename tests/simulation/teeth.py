"""
Switch each mechanism off, one at a time: a test or a life must fail then, or the tests prove nothing.

`python -m tests.simulation.teeth [PART OF A NAME] [--jobs N] [--lives N]` prints what bit, and leaves with the
number of mechanisms whose absence nobody noticed. With all mechanisms on, the same tests and lives pass.
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
from tests.figures import tell
from tests.simulation.life import live
from tests.simulation.switches import SWITCHES

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds after which a test without its mechanism counts as hanging, which is a failure too."""
PYTEST = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header")
FAILED = 1
"""What pytest leaves with when a test failed; other numbers mean that it ran none."""


def _tests_fail(names):
    """Return what pytest says of the tests: None when they pass, else the line of the failure."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = int(pytest.main([*PYTEST, *names]))
    if code not in (0, FAILED):
        raise ValueError(f"pytest leaves with {code} for {', '.join(names)}")
    return f"{names[0].partition('::')[2]} fails" if code else None


def _life_breaks(switch, lives):
    """Return which life breaks the switch's invariant, None when none of *lives* does."""
    tried = [switch.seed, *(seed for seed in range(lives) if seed != switch.seed)]
    for count, seed in enumerate(tried[:lives], 1):
        problem = live(seed).problem
        if problem.startswith(switch.invariant):
            moved = "" if count == 1 else f" (found after {count}; record this seed)"
            return f"seed {seed} breaks {problem.partition(':')[0][:60]}{moved}", seed
    return None, None


def _child(name, lives, answer):
    """Bite with one mechanism; the answer is what bit, empty when nothing did, and the seed if it was a life."""
    switch = SWITCHES[name]
    bitten, seed = "", None
    with ExitStack() as stack:
        for where, what, wrong in switch.patches:
            stack.enter_context(patch.object(where, what, wrong))
        if switch.tests:
            bitten = _tests_fail(switch.tests) or ""
        if not bitten and switch.invariant:
            bitten, seed = _life_breaks(switch, lives)
    if seed is not None and live(seed).problem:
        bitten = f"seed {seed} breaks also with the mechanism on"
        answer.send(("", bitten))
        return
    answer.send((bitten or "", ""))


class Bite:
    """One forked child, which may hang without harm."""

    def __init__(self, name, lives):
        context = multiprocessing.get_context("fork")
        self.name, self.began = name, time.monotonic()
        self.answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(name, lives, theirs))
        self._process.start()
        theirs.close()
        self._end = self.began + PATIENCE * (1 + bool(SWITCHES[name].invariant) * lives / 10)

    @property
    def over(self):
        return time.monotonic() > self._end

    def result(self):
        """Return what bit and what went wrong; a child that hangs is ended, and its test has failed."""
        if not self.answer.poll():
            self._process.kill()
            self._process.join()
            return (f"hangs for {PATIENCE:.0f} s", "") if SWITCHES[self.name].tests else ("", "no life ended")
        try:
            found = self.answer.recv()
        except EOFError:
            found = ("", "the child died")
        self._process.join()
        return found


def bite(names, jobs=1, lives=40):
    """Yield (name, what bit, what went wrong, seconds) for each mechanism, *jobs* at a time."""
    waiting, running = list(names), []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Bite(waiting.pop(0), lives))
        wait([one.answer for one in running], timeout=1.0)
        for one in [one for one in running if one.answer.poll() or one.over]:
            running.remove(one)
            yield (one.name, *one.result(), time.monotonic() - one.began)


def main():
    """Bite, print, and return how many mechanisms went unnoticed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--lives", type=int, default=40)
    asked = parser.parse_args()
    os.chdir(ROOT)
    names, began = [name for name in SWITCHES if asked.part in name], time.monotonic()
    bitten = 0
    for name, what, trouble, seconds in bite(names, asked.jobs, asked.lives):
        bitten += bool(what)
        print(f"without {name}: {what or 'UNNOTICED ' + trouble} ({seconds:.1f} s)", flush=True)
    used = sum(os.times()[:4])
    tell(
        "teeth",
        "Teeth",
        "Each mechanism is switched off alone; a test of the normal suite or a simulated life has to fail then, "
        "and passes with it on: `python -m tests.simulation.teeth`.",
        {
            "switched off, bitten": f"{bitten} of {len(names)}",
            "mechanisms": ", ".join(sorted({n.split()[0] for n in names}, key=lambda m: (m[0], int(m[1:])))),
            "wall time, processor time": f"{time.monotonic() - began:.0f} s, {used:.0f} s",
        },
    )
    return len(names) - bitten


if __name__ == "__main__":
    sys.exit(main())
