"""The replay of recovery policies: its records, its models of other tools, and that it repeats itself exactly."""

import json
from functools import partial
from random import Random
from statistics import mean

import numpy as np
import pytest

from benchmarks.policies import ours, peers
from benchmarks.policies.bound import most_kept
from benchmarks.policies.cost_bound import least_cost
from benchmarks.policies.due import Contract, from_start
from benchmarks.policies.ledger import Ledger
from benchmarks.policies.market import Latency, Market, Stress
from benchmarks.policies.replay import POLICIES, Task, replay
from benchmarks.policies.trace import FOLDER, SETS, Trace, lives, read_csv

TOLERANCE = 0.007
"""How far a model's kept/wall may lie from the published replay of the same rules."""


@pytest.fixture(scope="module")
def v100():
    """The record of nine AWS zones."""
    return SETS["v100"]()


def a_trace(*zones, tick=60.0):
    """Return a record from strings of 0 and 1."""
    up = np.array([[bit == "1" for bit in zone] for zone in zones])
    return Trace("drawn", tuple(f"us-east-1{'abcdefgh'[i]}" for i in range(len(zones))), tick, up, up * 1.0)


def played(trace, run, *, noticed=False, latency=None, stress=None):
    """Return the ledger of a policy that ran in a market."""
    ledger = Ledger(Market(trace, latency or Latency(), stress), noticed=noticed)
    run(ledger, Random(1))
    return ledger


def test_one_is_up_in_every_record(v100):
    """The published availability of each zone; read the other way round, none of them would hold."""
    assert v100.up.mean(axis=1).round(2).tolist() == [0.17, 0.47, 0.45, 0.59, 0.76, 0.68, 0.88, 0.90, 0.89]
    assert v100.up.any(axis=0).mean() == pytest.approx(0.992, abs=0.001)
    assert SETS["gang4"]().up.mean(axis=1).round(1).tolist() == [0.3, 0.6, 0.8]
    assert SETS["gang16"]().up.mean(axis=1).round(2).tolist() == [0.46, 0.33, 0.33]
    assert SETS["k80"]().up.mean(axis=1).round(2).tolist() == [0.95, 0.25]


def test_a_gang_is_up_when_all_of_it_is():
    """Fifteen of sixteen machines train nothing."""
    path = next(FOLDER.glob("aws_v100_16-nodes_us-east-2b.json"))
    counts = json.loads(path.read_text())["data"]
    up = SETS["gang16"]().up[0]
    assert any(0 < count < 16 for count in counts)
    assert up.tolist() == [count == 16 for count in counts[: len(up)]]


def test_prices_belong_to_their_zones(v100):
    """The dearest zone of the record is us-east-1a."""
    prices = dict(zip(v100.zones, v100.price.mean(axis=1), strict=True))
    assert max(prices, key=prices.get) == "us-east-1a"
    assert prices["us-west-2c"] == pytest.approx(0.942, abs=0.001)


def test_lives_are_in_seconds():
    """Two groups of machines, none of which lived longer than the record of 11.4 hours."""
    assert len(lives()) > 200
    assert 60 <= min(lives()) <= max(lives()) < 11.5 * 3600


def test_a_csv_of_ones_own(tmp_path):
    """A column of what was preempted is the complement of one of what was available."""
    path = tmp_path / "mine.csv"
    path.write_text("date,a,preempted:b,price:a\n2026-01-01 00:00:00,1,1,2.5\n2026-01-01 00:05:00,0,0,2.5\n")
    trace = read_csv(path)
    assert (trace.zones, trace.tick) == (("a", "b"), 300.0)
    assert trace.up.tolist() == [[True, False], [False, True]]
    assert trace.price.tolist() == [[2.5, 2.5], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("date,a\n0,1\n", "two rows"),
        ("date,a\n0,1\n300,yes\n", "'yes'"),
        ("date,a\n300,1\n0,1\n", "do not grow"),
        ("date,price:a\n0,1\n300,1\n", "no column of a zone"),
    ],
)
def test_a_csv_that_cannot_be_read_is_refused(tmp_path, text, complaint):
    """The message says what is wrong with it."""
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_csv(path)


def test_the_bound_is_the_published_one(v100):
    """0.986 of wall-clock time with nine zones; 0.624 in one zone on average, 0.896 in the best one."""
    assert most_kept(v100, Latency()) / v100.seconds == pytest.approx(0.986, abs=0.0005)
    ones = [most_kept(v100.only(z), Latency()) / v100.seconds for z in range(9)]
    assert mean(ones) == pytest.approx(0.624, abs=0.0005)
    assert max(ones) == pytest.approx(0.896, abs=0.0005)


def test_the_bound_by_hand():
    """Up for 20 ticks of a minute, of which create, push and restore take six; nothing else is lost."""
    assert most_kept(a_trace("1" * 20), Latency()) == 14 * 60.0
    assert most_kept(a_trace("1" * 10 + "0" * 5 + "1" * 10), Latency()) == 8 * 60.0
    assert most_kept(a_trace("1" * 10 + "0" * 10, "0" * 4 + "1" * 16), Latency()) == 10 * 60.0


PUBLISHED = {
    "2020 design (cron, one zone)": 0.582,
    "tpunicorn 0.5.5 as written, one zone": 0.001,
    "tpunicorn with retries, one zone": 0.602,
    "levanter's script, one zone": 0.602,
    "SkyPilot FAILOVER": 0.957,
    "SkyPilot EAGER_NEXT_REGION": 0.959,
    "dstack": 0.962,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_of_other_tools_agree_with_an_earlier_replay(v100, name):
    """The whole record, against a replay of the same rules by another program."""
    result = replay(Task(name, v100, Latency(), None, 0))
    assert result.kept / result.wall == pytest.approx(PUBLISHED[name], abs=TOLERANCE)


@pytest.mark.parametrize(("oldest", "noticed", "kept"), [(0, 0, 0.967), (1, 0, 0.969), (1, 1, 0.975)])
def test_a_plain_race_agrees_with_an_earlier_replay(v100, oldest, noticed, kept):
    """Losses seen after 10 s, all zones asked at once."""
    ledger = played(v100, partial(peers.race, oldest=bool(oldest)), noticed=bool(noticed))
    assert ledger.kept / v100.seconds == pytest.approx(kept, abs=0.002)


def test_kept_work_by_hand():
    """Two whole intervals survive; with a notice 30 s before the end, the rest up to it as well."""
    latency = Latency()
    assert latency.kept(0.0, 2 * 605.0 + 100.0, noticed=False) == 1200.0
    assert latency.kept(0.0, 2 * 605.0 + 100.0, noticed=True) == 1270.0
    assert latency.kept(0.0, 20.0, noticed=True) == 0.0


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("stress", [None, Stress()], ids=["plain", "stress"])
def test_a_replay_repeats_itself_to_the_bit(v100, policy, stress):
    """The same seed, the same result, whatever ran before."""
    task = Task(policy.name, v100.cut(3000, 200), Latency(), stress, 7)
    assert replay(task) == replay(task)


def test_the_product_asks_elsewhere_and_trains_on():
    """The zone goes down, the other one is up: a second machine steps after the floor and one poll."""
    trace = a_trace("1" * 30 + "0" * 60, "1" * 90)
    ledger = played(trace, partial(ours.tpuctl, strategy="failover"))
    assert ledger.accepted == 2
    (delay,) = ledger.delays
    assert 0 <= delay <= 15 + 30 + 5
    assert ledger.kept == 2 * 600.0 + 5 * 600.0


def test_a_notice_brings_the_replacement_before_the_end():
    """The delay is below zero, and the work up to the notice is kept."""
    trace = a_trace("1" * 30 + "0" * 60, "1" * 90)
    told = played(trace, partial(ours.tpuctl, strategy="race"), noticed=True)
    blind = played(trace, partial(ours.tpuctl, strategy="race"))
    assert told.delays[0] < 0 <= blind.delays[0]
    assert told.kept > blind.kept


def test_a_race_asks_in_several_zones_and_pays_for_one():
    """Three zones are up: three requests, one machine that is paid, no second one that trains."""
    ledger = played(a_trace(*["1" * 60] * 3), partial(ours.tpuctl, strategy="race"))
    assert (ledger.creates, ledger.accepted) == (3, 3)
    assert ledger.paid <= 3600.0 - 180.0 + 2 * 15.0
    assert ledger.kept == 5 * 600.0


def test_the_least_cost_by_hand():
    """Six ticks of work: spot for four of them, on demand for two, and a tick for each of the two starts."""
    trace = a_trace("111110" + "0" * 10, tick=3600.0)
    assert least_cost(trace, 0, 9, 6, 3600.0) == pytest.approx(5 * 1.0 + 3 * 3.06)
    assert least_cost(trace, 0, 16, 4, 3600.0) == pytest.approx(5 * 1.0)
    assert least_cost(trace, 6, 3, 3, 3600.0) == float("inf")


def test_no_deadline_is_missed_and_nobody_is_cheaper_than_the_least(v100):
    """All rules, from a few starts of the large record; the safety net holds for each."""
    contract = Contract("test", v100.coarse(3).only(4, 5), 20, 1.3)
    for start in range(0, 6000, 1500):
        found = from_start(contract, start)
        assert all(in_time for _, in_time in found.values())
        assert min(cost for cost, _ in found.values()) >= 1.0 - 1e-9


def test_luck_is_the_same_for_everybody(v100):
    """A quarter of the requests is taken, and who asks twice in half a minute hears the same."""
    market = Market(v100, Latency(), Stress(), seed=3)
    asked = [market.luck(4, at * 30.0) for at in range(4000)]
    assert mean(taken for taken, _ in asked) == pytest.approx(0.25, abs=0.03)
    assert market.luck(4, 61.0) == Market(v100, Latency(), Stress(), seed=3).luck(4, 89.0)
    assert market.soonest(0.0) >= 180.0
