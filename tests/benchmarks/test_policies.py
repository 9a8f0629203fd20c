"""The replay of recovery policies: its records, its models of other tools, and that it repeats itself exactly."""

import json
from functools import partial
from random import Random
from statistics import mean

import numpy as np
import pytest

from benchmarks.policies import ours, peers
from benchmarks.policies.__main__ import main
from benchmarks.policies.bound import most_retained
from benchmarks.policies.cost_bound import least_cost
from benchmarks.policies.due import OURS, Contract, from_starts
from benchmarks.policies.ledger import ReplayLedger
from benchmarks.policies.light_cloud import LightCloud
from benchmarks.policies.market import Latency, Market, Stress
from benchmarks.policies.replay import POLICIES, Replay, run_replay
from benchmarks.policies.trace import FOLDER, SETS, Trace, lifetimes, read_csv
from orchestrator.contract.interval import WorkPeriod
from orchestrator.engine.loop.loop import Loop

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
    ledger = ReplayLedger(Market(trace, latency or Latency(), stress), noticed=noticed)
    run(ledger, Random(1))
    return ledger


def test_one_zone_is_up_in_every_record(v100):
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


def test_lifetimes_are_in_seconds():
    """Two groups of machines, none of which lived longer than the record of 11.4 hours."""
    assert len(lifetimes()) > 200
    assert 60 <= min(lifetimes()) <= max(lifetimes()) < 11.5 * 3600


def test_a_csv_of_ones_own(tmp_path):
    """A column of what was preempted is the complement of one of what was available."""
    path = tmp_path / "mine.csv"
    path.write_text("date,a,preempted:b,price:a\n2026-01-01 00:00:00,1,1,2.5\n2026-01-01 00:05:00,0,0,2.5\n")
    trace = read_csv(path)
    assert (trace.zones, trace.tick) == (("a", "b"), 300.0)
    assert trace.up.tolist() == [[True, False], [False, True]]
    assert trace.price.tolist() == [[2.5, 2.5], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("date,a\n0,1\n", "csv:2, column date: a header and two rows"),
        ("date,a\n0,1\n300,yes\n", "csv:3, column a: 'yes' where 0 or 1"),
        ("date,a\n300,1\n0,1\n", "csv:3, column date: the times do not grow"),
        ("date,a\n0,1\nsoon,1\n", "csv:3, column date: 'soon' is neither"),
        ("date,a\n0,1\n300\n", "csv:3, column a: 1 of 2 cells"),
        ("date,a,a\n0,1,1\n300,1,1\n", "csv:1, column a: the name is there twice"),
        ("date,a\n0,1\n300,1\n600,1\n730,1\n", "csv:5, column date: 130 s after"),
        ("date,a\n0,1\n300,1\n600,1\n1200,1\n", "csv:5, column date: 1 rows are missing"),
        ("date,price:a\n0,1\n300,1\n", "column price:a: there is no column of a zone"),
        ("date,a,price:a\n0,1,1\n300,1,free\n", "csv:3, column price:a: 'free' is not a number"),
        ("date,a,price:b\n0,1,1\n300,1,1\n", "csv:1, column price:b: the zone has no column"),
        ("date,a,cost:a\n0,1,1\n300,1,1\n", "csv:1, column cost:a: only price: and preempted:"),
    ],
)
def test_a_csv_that_cannot_be_read_is_refused(tmp_path, text, error):
    """The message names the line and the column, and says what is wrong there."""
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        read_csv(path)


def test_rows_that_are_missing_are_filled_on_demand(tmp_path):
    """A step of three ticks repeats the row before it; a gang is up when enough machines are."""
    path = tmp_path / "mine.csv"
    path.write_text("at,a,price:a\n0,4,1\n300,3,2\n600,4,3\n1500,2,4\n")
    trace = read_csv(path, gang=4, on_demand=9.0, fill=True)
    assert trace.up.tolist() == [[True, False, True, True, True, False]]
    assert trace.price.tolist() == [[1.0, 2.0, 3.0, 3.0, 3.0, 4.0]]
    assert (trace.tick, trace.on_demand) == (300.0, 9.0)


def test_one_command_replays_a_record_with_every_option(tmp_path, capsys, monkeypatch):
    """The figures of the policies that were asked for, and of a job with a deadline, as JSON."""
    path = tmp_path / "mine.csv"
    rows = "\n".join(f"{i * 300},{int(i % 40 > 9)},1.5" for i in range(200))
    path.write_text(f"at,us-east5-a,price:us-east5-a\n{rows}\n")
    (tmp_path / "lifetimes").write_text("4000\n")
    words = ["--trace", str(path), "--seeds", "1", "--policy", "tpuctl race", "--json", "--jobs", "1"]
    more = ["--stress", "--lifetimes", str(tmp_path / "lifetimes"), "--deadline", "4:1.5", "--on-demand", "4"]
    monkeypatch.setattr("sys.argv", ["policies", *words, *more])
    main()
    reported = json.loads(capsys.readouterr().out)
    assert reported["policies"]["tpuctl race"]["usd_per_kept_hour"] > 1.5
    assert {one["tpuctl"]["in_time"] for one in reported["due"]["mine, 4:1.5"]} == {True}
    monkeypatch.setattr("sys.argv", ["policies", *words, "--deadline", "400:2"])
    with pytest.raises(SystemExit):
        main()
    assert "shorter than the deadline" in capsys.readouterr().err


def test_the_bound_is_the_published_one(v100):
    """0.986 of wall-clock time with nine zones; 0.624 in one zone on average, 0.896 in the best one."""
    assert most_retained(v100, Latency()) / v100.seconds == pytest.approx(0.986, abs=0.0005)
    ones = [most_retained(v100.only(z), Latency()) / v100.seconds for z in range(9)]
    assert mean(ones) == pytest.approx(0.624, abs=0.0005)
    assert max(ones) == pytest.approx(0.896, abs=0.0005)


def test_the_bound_by_hand():
    """Up for 20 ticks of a minute, of which create, push and restore take six; nothing else is lost."""
    assert most_retained(a_trace("1" * 20), Latency()) == 14 * 60.0
    assert most_retained(a_trace("1" * 10 + "0" * 5 + "1" * 10), Latency()) == 8 * 60.0
    assert most_retained(a_trace("1" * 10 + "0" * 10, "0" * 4 + "1" * 16), Latency()) == 10 * 60.0


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
    result = run_replay(Replay(name, v100, Latency(), None, 0))
    assert result.useful / result.wall == pytest.approx(PUBLISHED[name], abs=TOLERANCE)


@pytest.mark.parametrize(("oldest", "noticed", "retained"), [(0, 0, 0.967), (1, 0, 0.969), (1, 1, 0.975)])
def test_a_plain_race_agrees_with_an_earlier_replay(v100, oldest, noticed, retained):
    """Preemptions observed after 10 s, all zones asked at once."""
    ledger = played(v100, partial(peers.race, oldest=bool(oldest)), noticed=bool(noticed))
    assert ledger.useful / v100.seconds == pytest.approx(retained, abs=0.002)


def test_saved_work_by_hand():
    """Two whole intervals survive; with a notice 30 s before the end, the rest up to it as well."""
    latency = Latency()
    assert latency.useful(0.0, 2 * 605.0 + 100.0, noticed=False) == 1200.0
    assert latency.useful(0.0, 2 * 605.0 + 100.0, noticed=True) == 1270.0
    assert latency.useful(0.0, 20.0, noticed=True) == 0.0


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("stress", [None, Stress()], ids=["plain", "stress"])
def test_a_replay_repeats_itself_to_the_bit(v100, policy, stress):
    """The same seed, the same result, whatever ran before."""
    again = Replay(policy.name, v100.cut(3000, 200), Latency(), stress, 7)
    assert run_replay(again) == run_replay(again)


def test_the_product_asks_elsewhere_and_trains_on():
    """The zone goes down, the other one is up: a second machine steps after the floor and one poll."""
    trace = a_trace("1" * 30 + "0" * 60, "1" * 90)
    ledger = played(trace, partial(ours.tpuctl, strategy="failover"))
    assert ledger.used == 2
    (delay,) = ledger.delays
    assert 0 <= delay <= 15 + 30 + 5
    assert ledger.useful == 2 * 600.0 + 5 * 600.0


def test_a_notice_brings_the_replacement_before_the_end():
    """The delay is below zero, and the work up to the notice is saved."""
    trace = a_trace("1" * 30 + "0" * 60, "1" * 90)
    reported = played(trace, partial(ours.tpuctl, strategy="race"), noticed=True)
    blind = played(trace, partial(ours.tpuctl, strategy="race"))
    assert reported.delays[0] < 0 <= blind.delays[0]
    assert reported.useful > blind.useful


def test_a_race_asks_in_several_zones_and_pays_for_one():
    """Three zones are up: two requests, one machine that is paid, no second one that trains."""
    ledger = played(a_trace(*["1" * 60] * 3), partial(ours.tpuctl, strategy="race"))
    assert (ledger.creates, ledger.used) == (2, 1)
    assert ledger.paid <= 3600.0 - 180.0 + 2 * 15.0
    assert ledger.useful == 5 * 600.0


def test_the_replay_learns_each_refusal():
    """The record of the product counts a refusal of the market as one, and not as a machine that has vanished."""
    ledger = ReplayLedger(Market(a_trace("0" * 30), Latency()))
    cloud = LightCloud(ledger, ours.a_spec(("us-east1-a",), "failover"))
    with ours.light_observations():
        parts = ours.deployment(cloud)
        Loop(parts).run(lambda _: cloud.time >= 900.0)
    (place,) = parts.records.current.capacity_history
    assert place.refused >= ledger.creates - 1 > 5


def test_a_machine_that_is_stopped_keeps_what_was_saved_by_then():
    """Not the work until its zone would have gone down; after a notice the last save counts, too."""
    market = Market(a_trace("1" * 100), Latency())
    for stop, retained in ((3000.0, 2400.0), (5980.0, 5745.0)):
        ledger = ReplayLedger(market, noticed=True)
        ledger.lifetime(0, 0.0, 6000.0, stop=stop)
        assert ledger.useful == retained
        assert ledger.usd == pytest.approx(stop / 3600)


def test_every_auto_saves_less_often_the_longer_machines_live():
    """After a long life with a last save, an hour's pause: less than half of the saves of a fixed 600 s."""
    latency = Latency()
    saved, unsaved = latency.worked_with_auto(0.0, 40000.0, [WorkPeriod(200000.0, lost=False)])
    assert 40000.0 - saved - unsaved < (40000.0 - sum(latency.worked(0.0, 40000.0))) / 2
    often = latency.worked_with_auto(0.0, 4000.0, [WorkPeriod(300.0, lost=True)] * 20)
    assert often[1] < 200.0


def test_the_least_cost_by_hand():
    """Six hours of work: spot for four, on demand for two; each machine boots for a paid hour."""
    trace = a_trace("0111110" + "0" * 10, tick=3600.0)
    boot = {"create": 0.0, "boot": 3600.0}
    assert least_cost(trace, 1, 8, 6, **boot) == pytest.approx(5 * 1.0 + 3 * 3.06)
    assert least_cost(trace, 1, 16, 4, **boot) == pytest.approx(5 * 1.0)
    assert least_cost(trace, 7, 3, 3, **boot) == float("inf")


def test_who_knows_the_trace_creates_while_the_last_machine_works():
    """A creation costs nothing, and its zone has to be up meanwhile."""
    wait = {"create": 3600.0, "boot": 3600.0}
    assert least_cost(a_trace("111111", tick=3600.0), 0, 6, 4, **wait) == pytest.approx(5.0)
    assert least_cost(a_trace("111000000", "001111111", tick=3600.0), 0, 9, 5, **wait) == pytest.approx(6.0)
    assert least_cost(a_trace("0111110000", tick=3600.0), 0, 10, 4, **wait) > 5.0


def test_no_deadline_is_missed_and_no_policy_is_cheaper_than_the_least(v100):
    """All rules and the product's real loop, from a few starts of the large record."""
    contract = Contract("test", v100.only(4, 5), 20, 1.3)
    for found in from_starts(contract, contract.starts(3)):
        assert OURS in found
        assert all(one.in_time for one in found.values())
        assert min(one.cost for one in found.values()) >= 1.0 - 0.01


def test_luck_is_the_same_for_every_policy(v100):
    """A quarter of the requests is taken, and who asks twice in half a minute hears the same."""
    market = Market(v100, Latency(), Stress(), seed=3)
    asked = [market.luck(4, at * 30.0) for at in range(4000)]
    assert mean(taken for taken, _ in asked) == pytest.approx(0.25, abs=0.03)
    assert market.luck(4, 61.0) == Market(v100, Latency(), Stress(), seed=3).luck(4, 89.0)
    assert market.soonest(0.0) >= 180.0
