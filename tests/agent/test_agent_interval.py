"""The interval between saves that is learnt: near the best fixed one in any zone, and told to the job."""

import json
import math
import time
from collections.abc import Callable
from random import Random

import pytest

from orchestrator.contract.interval import LONGEST, SHORTEST, Life, best_interval, saving_interval
from tests.agent.agent_lab import Lab

HOUR = 3600.0
DAYS = 3 * 86400.0
FACTORS = (0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.7, 2.0, 2.8)


def lives_of(seed: int, mean: float, shape: float) -> list[float]:
    """Draw the lives of three days, at least 20; a *shape* below 1 has many short ones and a few long ones."""
    random = Random(seed)
    scale = mean / math.gamma(1 + 1 / shape)
    return [random.weibullvariate(scale, shape) for _ in range(max(20, int(DAYS / mean)))]


def wasted(lives: list[float], save: float, every: Callable[[list[Life], float], float]) -> float:
    """Return the seconds that saves and lost work take, on a clock that jumps from save to save."""
    waste, past = 0.0, list[Life]()
    for life in lives:
        now = 0.0
        while now + (step := every(past, now) + save) <= life:
            now, waste = now + step, waste + save
        waste += life - now
        past.append(Life(life, lost=True))
    return waste


@pytest.mark.parametrize("mean", [0.3 * HOUR, HOUR, 4 * HOUR, 12 * HOUR])
@pytest.mark.parametrize("shape", [1.0, 0.7])
@pytest.mark.parametrize("save", [5.0, 30.0])
def test_what_is_wasted_is_within_a_tenth_of_the_best_fixed_interval(
    mean: float, shape: float, save: float
) -> None:
    """The best of 13 fixed intervals is chosen in hindsight, knowing all lives; ours starts without a figure."""
    ours, fixed = 0.0, [0.0] * len(FACTORS)
    for seed in range(12):
        lives = lives_of(seed, mean, shape)
        ours += wasted(lives, save, lambda past, up: saving_interval(save, [*past, Life(up, lost=False)]))
        for number, factor in enumerate(FACTORS):
            always = best_interval(save, mean) * factor
            fixed[number] += sum(life - life // (always + save) * always for life in lives)
    assert ours <= 1.10 * min(fixed)


def test_a_long_quiet_life_lengthens_the_interval_and_losses_shorten_it() -> None:
    """A loss that cost no work, thanks to its notice, is none: nothing would have been saved earlier."""
    first = saving_interval(5, [])
    assert saving_interval(5, [Life(12 * HOUR, lost=False)]) > 2 * first
    assert saving_interval(5, [Life(600, lost=True)] * 6) < first / 1.5
    assert saving_interval(5, [Life(600, lost=False)] * 6) > first


@pytest.mark.parametrize("save", [0.0, 1e-9, 7.0, 1e9])
def test_the_interval_stays_in_its_bounds(save: float) -> None:
    """Whatever a job reports."""
    for lives in ([], [Life(0.0, lost=True)] * 50, [Life(1e9, lost=False)]):
        assert SHORTEST <= saving_interval(save, lives) <= LONGEST


def test_a_job_is_told_the_interval_at_its_start_and_while_it_runs(lab: Lab) -> None:
    """
    Earlier machines died young, so it is told less; its own report of slow saves changes that.

    One of them rested after its notice, with all saved: its life is no loss.
    """
    for number in (1, 2, 3):
        report = {
            "at": 1300.0,
            "timings": {"spawned": 1000.0},
            "phase": "run",
            "step": 9,
            "committed_step": 9,
        }
        lab.put(f".tpuctl/heartbeat/{number}/0", json.dumps(report).encode())
    rested = {
        "at": 1300.0,
        "timings": {"spawned": 1000.0},
        "phase": "stopped",
        "step": 9,
        "committed_step": 9,
    }
    lab.put(".tpuctl/heartbeat/4/0", json.dumps(rested).encode())
    lab.put(".tpuctl/heartbeat/5/0", b"torn")
    job = (
        "until [ -s $TPUCTL_SAVE_EVERY_FILE ]; do sleep 0.05; done; cp $TPUCTL_SAVE_EVERY_FILE first; "
        'echo "{\\"step\\": 1, \\"save_seconds\\": 500}" > $TPUCTL_PROGRESS_FILE; '
        "until ! cmp -s $TPUCTL_SAVE_EVERY_FILE first; do sleep 0.05; done; "
        "echo $(cat first) $(cat $TPUCTL_SAVE_EVERY_FILE) $TPUCTL_SAVE_EVERY_SECONDS"
    )
    machine = lab.machine(INCARNATION=6, SAVE_EVERY="auto", SAVE_SECONDS="20", COMMAND=job)
    began = time.monotonic()
    machine.run_to_end()
    first, later, given = (float(word) for word in lab.log(6).splitlines()[-2].split())
    lives = [*[Life(300.0, lost=True)] * 3, Life(300.0, lost=False)]
    # Its own life counts as well: on a busy computer it takes a minute.
    longest = [*lives, Life(time.monotonic() - began, lost=False)]
    assert saving_interval(20, lives) - 1 <= first <= saving_interval(20, longest) + 1
    assert given in {first, round(saving_interval(20, []))}
    assert saving_interval(500, lives) - 1 <= later <= saving_interval(500, longest) + 1
    # The last report may be of after the job's end, which was a loss as well: step 1 is in no checkpoint.
    shortest = saving_interval(500, [*lives, Life(0.0, lost=True)])
    assert shortest - 1 <= machine.heartbeat()["save_every"] <= saving_interval(500, longest) + 1


def test_a_fixed_interval_is_told_and_no_interval_is_not(lab: Lab) -> None:
    """The variables are empty where the job decides for itself."""
    say = 'echo "$TPUCTL_SAVE_EVERY_SECONDS,$(basename "$TPUCTL_SAVE_EVERY_FILE")"'
    lab.machine("fixed", INCARNATION=1, SAVE_EVERY="90", COMMAND=say).run_to_end()
    lab.machine("own", INCARNATION=2, COMMAND=say).run_to_end()
    assert "90,save-every" in lab.log(1).splitlines()
    assert "," in lab.log(2).splitlines()
