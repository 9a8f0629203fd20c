"""
Whole lives from seeds: no invariant breaks, and the same seed is the same life, byte for byte.

More of them: `.ci/reliability`; one of them: `python -m tests.simulation SEED --trace FILE`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.life import live

ROOT = Path(__file__).parents[2]
LIVES = range(8)


@pytest.mark.parametrize("half", [0, 1])
def test_lives_under_faults_break_no_invariant(half):
    """
    Each seed: hours of faults, then calm, the desired state, and a day in which nothing is changed.
    """
    lives = [live(seed) for seed in LIVES if seed % 2 == half]
    assert [(life.seed, life.problem) for life in lives if life.problem] == []
    assert sum(sum(life.events.values()) for life in lives) > 100, "lives without faults prove nothing"


TRACER = """
import sys
from pathlib import Path
from tests.simulation.life import live
with Path(sys.argv[1]).open("w") as file:
    for seed in (2, 6):
        live(seed, lambda line: file.write(line + chr(10)))
"""


def trace_of(hashing, folder):
    """Live two lives in a process of its own and return its trace."""
    path = folder / f"trace-{hashing}"
    subprocess.run(
        [sys.executable, "-c", TRACER, str(path)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hashing)}, check=True, capture_output=True,
    )  # fmt: skip
    return path.read_bytes()


def test_a_seed_is_the_same_life_in_every_process(tmp_path):
    """
    Nothing but the seed decides: not the hash of strings, not threads, not time.
    """
    first = trace_of(1, tmp_path)
    assert first == trace_of(2, tmp_path)
    assert first.count(b"\n") > 500
