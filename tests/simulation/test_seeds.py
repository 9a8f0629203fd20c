"""
Whole runs from seeds: no invariant breaks, and the same seed is the same run, byte for byte.

More of them: `.ci/reliability`; one of them: `python -m tests.simulation SEED --trace FILE`. Other versions
of Python that have our dependencies play along when TPUCTL_PYTHONS names their programs, between colons.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.engine.reconcile.apply import Actor
from tests.kit.figures import record_figures
from tests.simulation.run import simulate

ROOT = Path(__file__).parents[2]
SEEDS = range(8)
OTHER_PYTHONS = [path for path in os.environ.get("TPUCTL_PYTHONS", "").split(":") if path]
TRACED = tuple(range(20)) if OTHER_PYTHONS else (2, 6)
"""Seeds whose traces are compared."""


@pytest.mark.parametrize("half", [0, 1])
def test_runs_under_faults_break_no_invariant(half):
    """Each seed: hours of faults, then calm, the desired state, and a day in which nothing is changed."""
    runs = [simulate(seed) for seed in SEEDS if seed % 2 == half]
    assert [(run.seed, run.violation) for run in runs if run.violation] == []
    assert sum(sum(run.events.values()) for run in runs) > 100, "runs without faults prove nothing"


TRACER = """
import platform
import sys
from pathlib import Path
from tests.simulation.run import simulate
with Path(sys.argv[1]).open("w") as file:
    for seed in map(int, sys.argv[2:]):
        simulate(seed, lambda line: file.write(line + chr(10)))
print(platform.python_version())
"""


def trace_of(hashing, folder, python=sys.executable):
    """Simulate runs in a process of its own; return the version of its Python, and its trace."""
    path = folder / f"trace-{hashing}"
    done = subprocess.run(
        [python, "-c", TRACER, str(path), *map(str, TRACED)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hashing)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.split()[-1], path.read_bytes()


def test_a_seed_is_the_same_life_in_every_process(tmp_path):
    """Nothing but the seed decides: not the hash of strings, not threads, not time, not the version of Python."""
    version, first = trace_of(1, tmp_path)
    versions = [version]
    for hashing, python in enumerate([sys.executable, *OTHER_PYTHONS], 2):
        version, trace = trace_of(hashing, tmp_path, python)
        assert first == trace, version
        versions.append(version)
    assert first.count(b"\n") > 500
    if OTHER_PYTHONS:
        record_figures(
            "traces", "The same seed, the same run",
            "Traces of whole runs, in processes with different hashes of strings: equal, byte for byte. "
            "`TPUCTL_PYTHONS=... pytest tests/simulation/test_seeds.py`.",
            {"seeds": len(TRACED), "bytes": f"{len(first):,}", "Python": ", ".join(sorted(set(versions)))},
        )  # fmt: skip


def test_an_error_of_our_own_code_that_a_pass_survives_is_a_violation(monkeypatch):
    """The loop goes on after it, so nothing else need show what it broke."""
    calls, really = [], Actor._call

    def breaks_once(self, change, world):
        calls.append(change.name)
        if len(calls) == 2:
            raise KeyError(429)
        return really(self, change, world)

    monkeypatch.setattr(Actor, "_call", breaks_once)
    assert "KeyError: 429" in simulate(2).violation
    assert len(calls) > 2
