"""The interval between saves that is learnt: near the best fixed one in any zone, and passed to the job."""

import json
import math
import time
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contract.interval import (
    MAX_INTERVAL,
    MIN_INTERVAL,
    UNKNOWN_ZONE,
    WorkPeriod,
    ZonePreemptions,
    best_save_interval,
    save_interval,
    time_between_interruptions,
    zone_preemptions,
)
from orchestrator.domain.machines.capacity import after_grant, after_preemption
from orchestrator.engine.records.capacity_history import encoded
from tests.agent.agent_lab import AgentLab, lines_of_the_job

HOUR = 3600.0
DAYS = 3 * 86400.0
FACTORS = (0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.7, 2.0, 2.8)


def interval(
    pause: float, periods: Sequence[WorkPeriod], zone: ZonePreemptions = UNKNOWN_ZONE, least: float = 0.0
) -> float:
    """Return the interval as the agent computes it."""
    return save_interval(pause, time_between_interruptions(periods, zone), least)


def running(seconds: float) -> WorkPeriod:
    """Return a period that goes on."""
    return WorkPeriod(seconds, lost=False, ended=False)


def periods_of(seed: int, mean: float, shape: float) -> list[float]:
    """Draw the work periods of three days, at least 20; a *shape* below 1 has many short ones and few long ones."""
    random = Random(seed)
    scale = mean / math.gamma(1 + 1 / shape)
    return [random.weibullvariate(scale, shape) for _ in range(max(20, int(DAYS / mean)))]


def wasted(periods: list[float], save: float, every: Callable[[list[WorkPeriod], float], float]) -> float:
    """Return the seconds that saves and lost work take, on a clock that jumps from save to save."""
    waste, past = 0.0, list[WorkPeriod]()
    for period in periods:
        now = 0.0
        while now + (step := every(past, now) + save) <= period:
            now, waste = now + step, waste + save
        waste += period - now
        past.append(WorkPeriod(period, lost=True))
    return waste


@pytest.mark.parametrize("mean", [0.3 * HOUR, HOUR, 4 * HOUR, 12 * HOUR])
@pytest.mark.parametrize("shape", [1.0, 0.7])
@pytest.mark.parametrize("save", [5.0, 30.0])
def test_what_is_wasted_is_within_a_tenth_of_the_best_fixed_interval(
    mean: float, shape: float, save: float
) -> None:
    """The best of 13 fixed intervals is chosen in hindsight, knowing all periods; ours starts without a figure."""
    ours, fixed = 0.0, [0.0] * len(FACTORS)
    for seed in range(12):
        periods = periods_of(seed, mean, shape)
        ours += wasted(periods, save, lambda past, up: interval(save, [*past, running(up)]))
        for number, factor in enumerate(FACTORS):
            always = best_save_interval(save, mean) * factor
            fixed[number] += sum(period - period // (always + save) * always for period in periods)
    assert ours <= 1.10 * min(fixed)


def test_a_long_quiet_life_lengthens_the_interval_and_interruptions_shorten_it() -> None:
    """A preemption that took no work, thanks to its notice, does not count: earlier saves had been in vain."""
    first = interval(5, [])
    assert interval(5, [running(12 * HOUR)]) > 2 * first
    assert interval(5, [WorkPeriod(600, lost=True)] * 6) < first / 1.5
    assert interval(5, [WorkPeriod(600, lost=False)] * 6) > first


def test_what_is_known_of_the_zone_counts_before_this_job_has_lost_anything() -> None:
    """Eleven TPUs of earlier runs lived for ten minutes there; of a good zone as many for half a day."""
    bad, good = ZonePreemptions(11 * 600, 11), ZonePreemptions(11 * 12 * HOUR, 11)
    assert interval(5, [], bad) < interval(5, []) / 2
    assert interval(5, [], good) > interval(5, []) * 2
    # A notice that left time to save takes no work, however short the periods are.
    assert interval(5, [WorkPeriod(600, lost=False)] * 15, bad) > interval(5, [])


seconds = st.floats(0, 1e9)
all_periods = st.lists(
    st.builds(lambda s, lost: WorkPeriod(s, lost=lost), seconds, st.booleans()), max_size=30
)
zones = st.builds(ZonePreemptions, seconds, st.integers(0, 1000))


@given(seconds, all_periods, zones, seconds)
def test_the_interval_stays_in_its_bounds_and_is_no_shorter_than_a_save(pause, periods, zone, least) -> None:
    """Whatever a job reports, and whatever stands in the bucket."""
    assert MIN_INTERVAL <= interval(pause, periods, zone, least) <= MAX_INTERVAL
    assert interval(pause, periods, zone, least) >= min(max(pause, least), MAX_INTERVAL)


@given(seconds, all_periods, zones, seconds, seconds)
def test_the_interval_grows_with_pause_periods_and_uploads_and_falls_with_interruptions(
    pause, periods, zone, least, more
) -> None:
    """Of two situations that differ in one thing, the worse market saves more often, the longer save less often."""
    before = interval(pause, periods, zone, least)
    assert interval(pause + more, periods, zone, least) >= before
    assert interval(pause, periods, zone, least + more) >= before
    assert interval(pause, periods, ZonePreemptions(zone.lived + more, zone.preemptions), least) >= before
    assert interval(pause, periods, ZonePreemptions(zone.lived, zone.preemptions + 1), least) <= before
    lost = [WorkPeriod(one.seconds, lost=True) for one in periods]
    assert interval(pause, lost, zone, least) <= before


@given(st.binary(max_size=200) | st.from_regex(r'\{"places": .{0,80}').map(str.encode))
def test_a_capacity_history_that_cannot_be_read_says_nothing(data) -> None:
    """The job trains on with what is assumed."""
    assert zone_preemptions(data, "a", "b") == ZonePreemptions()


@pytest.mark.parametrize("lived", ["-1", "1e999", "NaN", '"x"', "null", "[]"])
def test_an_absurd_life_in_the_capacity_history_says_nothing(lived: str) -> None:
    """Neither negative nor without end."""
    text = f'{{"places": [{{"zone": "a", "type": "b", "lived": {lived}, "lives": 2}}]}}'
    assert zone_preemptions(text.encode(), "a", "b") == ZonePreemptions()


def test_the_agent_reads_the_capacity_history_as_the_controller_writes_it() -> None:
    """Of its own zone and type only."""
    history = after_preemption(after_preemption((), "a", "b", 9000, 600), "a", "b", 9900, 300)
    data = encoded(after_preemption(history, "a", "other", 9000, 7))
    assert zone_preemptions(data, "a", "b") == ZonePreemptions(900, 2)
    assert (
        zone_preemptions(data, "c", "b")
        == zone_preemptions(encoded(after_grant((), "a", "b", 1)), "a", "b")
        == ZonePreemptions()
    )


def test_a_job_gets_the_interval_at_its_start_and_while_it_runs(lab: AgentLab) -> None:
    """
    Earlier machines died young, so it gets a shorter one; its own report of slow saves changes that.

    TPUs of this zone did so, too. One of them rested after its notice, with all saved: its period lost nothing.
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
    history = ()
    for at in range(4):
        history = after_preemption(history, "europe-west4-b", "v5litepod-8", 9000.0 + at, 300.0)
    lab.put(".tpuctl/capacity.json", encoded(history))
    job = (
        "until [ -s $TPUCTL_SAVE_EVERY_FILE ]; do sleep 0.05; done; cp $TPUCTL_SAVE_EVERY_FILE first; "
        'echo "{\\"step\\": 1, \\"save_pause\\": 500}" > $TPUCTL_PROGRESS_FILE; '
        "until ! cmp -s $TPUCTL_SAVE_EVERY_FILE first; do sleep 0.05; done; "
        "echo $(cat first) $(cat $TPUCTL_SAVE_EVERY_FILE) $TPUCTL_SAVE_EVERY_SECONDS"
    )
    machine = lab.machine(
        INCARNATION=6, SAVE_INTERVAL="auto", SAVE_PAUSE="20", COMMAND=job, TPU_TYPE="v5litepod-8",
        _ZONE="europe-west4-b",
    )  # fmt: skip
    began = time.monotonic()
    machine.run_to_end()
    first, later, given = (float(word) for word in lines_of_the_job(lab.log(6))[-1].split())
    periods, zone = (
        [*[WorkPeriod(300.0, lost=True)] * 3, WorkPeriod(300.0, lost=False)],
        ZonePreemptions(1200.0, 4),
    )
    # Its own period counts as well: on a busy computer it takes a minute.
    longest = [*periods, running(time.monotonic() - began)]
    assert interval(20, periods, zone) - 1 <= first <= interval(20, longest, zone) + 1
    # What is known of others is read while the job starts: all, a part or nothing of it may be there by then.
    assert given in {first, *(round(interval(20, *known)) for known in ([periods], [[], zone], [[]]))}
    assert interval(500, periods, zone) - 1 <= later <= interval(500, longest, zone) + 1
    # The last heartbeat may be of after the job's end, which was an interruption too: step 1 is in no checkpoint.
    heartbeat, shortest = machine.heartbeat(), [*periods, WorkPeriod(0.0, lost=True)]
    assert interval(500, shortest, zone) - 1 <= heartbeat["save_interval"] <= interval(500, longest, zone) + 1
    assert (
        time_between_interruptions(shortest, zone) - 1
        <= heartbeat["time_between_interruptions"]
        <= time_between_interruptions(longest, zone) + 1
    )
    assert (heartbeat["save_pause"], heartbeat["save_pause_from"]) == (500, "reported")


def test_a_fixed_interval_is_passed_on_and_no_interval_is_not(lab: AgentLab) -> None:
    """The variables are empty where the job decides for itself."""
    say = 'echo "$TPUCTL_SAVE_EVERY_SECONDS,$(basename "$TPUCTL_SAVE_EVERY_FILE")"'
    lab.machine("fixed", INCARNATION=1, SAVE_INTERVAL="90", COMMAND=say).run_to_end()
    lab.machine("own", INCARNATION=2, COMMAND=say).run_to_end()
    assert "90,save-every" in lab.log(1).splitlines()
    assert "," in lab.log(2).splitlines()


@pytest.mark.parametrize(
    ("whence", "pause", "used", "key"),
    [
        ("measured", 45.0, 45.0, "save_pause"),
        ("reported", 45.0, 45.0, "save_pause"),
        ("assumed", 45.0, 20.0, "save_pause"),
        ("measured", "x", 20.0, "save_pause"),
        ("measured", 45.0, 45.0, "save_cost"),  # of an agent of an earlier release
    ],
)
def test_a_new_machine_begins_with_the_save_pause_of_the_last_one(
    lab: AgentLab, whence: str, pause: object, used: float, key: str
) -> None:
    """What was only assumed there is no knowledge; the file's own figure comes before that."""
    report = {"at": 1300.0, "timings": {}, "phase": "run", key: pause, f"{key}_from": whence}
    lab.put(".tpuctl/heartbeat/1/0", json.dumps(report).encode())
    wait = "until [ -s $TPUCTL_SAVE_EVERY_FILE ]; do sleep 0.05; done"
    machine = lab.machine(INCARNATION=2, SAVE_INTERVAL="auto", SAVE_PAUSE="20", COMMAND=wait)
    machine.run_to_end()
    assert machine.heartbeat()["save_pause"] == used
