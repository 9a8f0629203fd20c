"""What a deployment has cost, against a calculation by hand: tick by tick, with prices read from the tables."""

import csv
import random
from pathlib import Path

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.record import Span, first_incarnations, lifetimes
from orchestrator.pricing.cost_breakdown import StoredAmount, cost_breakdown
from orchestrator.pricing.cost_so_far import cost_so_far
from orchestrator.pricing.use_spans import Use, use_spans
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import heartbeat, record

DATA = Path(__file__).parents[2] / "orchestrator" / "data"
T0 = 1_800_000_000.0 - 1_800_000_000.0 % 86400
TICK = 60
CATALOG = load_catalog()


def table(name):
    """Return the rows of a price table."""
    lines = (DATA / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


TPUS, VMS = table("tpu_prices.csv"), table("vm_prices.csv")
CHIPS = {row["accelerator_type"]: int(row["chips"]) for row in table("accelerators.csv")}


def tpu_price(kind, zone, spot):
    """Return USD an hour of a v5e or v6e slice."""
    (row,) = [r for r in TPUS if r["zone"] == zone and r["generation"] == kind[0]]
    return float(row["spot_usd_chip_hour" if spot else "on_demand_usd_chip_hour"]) * CHIPS[kind[1]]


def vm_price(kind, item, region, column="on_demand_usd"):
    """Return a price of the table of VMs, disks and addresses."""
    (row,) = [r for r in VMS if (r["kind"], r["item"], r["region"]) == (kind, item, region)]
    return float(row[column])


def test_a_tpu_that_has_lost_its_race_costs_money_and_is_no_preemption_of_the_job():
    """It was READY for a moment beside the winner, whose time goes on being the job's."""
    spec = a_spec(tpu__type="v5litepod-8", tpu__zones=["europe-west4-b"], vm="none")
    won = Span(Kind.NODE, "demo-tpu-g1", "europe-west4-b", T0)
    lost = Span(Kind.NODE, "demo-tpu-g2", "europe-west4-b", T0 + 10, T0 + 70)
    heartbeats = [
        heartbeat(timings={"first_step": T0 + 100.0}),
        heartbeat(incarnation=2, phase=Phase.STOPPED),
    ]
    known = record(spans=(won, lost), started_at=T0)
    found = cost_breakdown(spec, CATALOG, known, heartbeats, T0 + 3600)
    alone = cost_breakdown(spec, CATALOG, record(spans=(won,), started_at=T0), heartbeats[:1], T0 + 3600)
    assert found.usd == pytest.approx(alone.usd * 3660 / 3600)
    assert set(found.uses) == set(alone.uses) == {"starting", "training"}


def lifetime(chance):
    """Return a deployment that lost its TPU some times: spec, spans, last heartbeats, the uses of each tick."""
    kind = chance.choice([("v5e", "v5litepod-8"), ("v5e", "v5litepod-1"), ("v6e", "v6e-4")])
    zones = ["us-east5-a", "us-east5-b"] if kind[0] == "v6e" else ["europe-west4-b"]
    spot, with_vm = chance.random() < 0.8, chance.random() < 0.7
    spec = a_spec(
        tpu__type=kind[1], tpu__zones=zones, tpu__spot=spot,
        **({"vm__zone": zones[0]} if with_vm else {"vm": "none"}),
    )  # fmt: skip
    at = T0 + TICK * chance.randrange(1440)
    spans = [Span(Kind.VM, "demo-vm", zones[0], at)] if with_vm else []
    heartbeats, uses = [], {}
    tpus = chance.randrange(1, 6)
    for number in range(1, tpus + 1):
        start, train, lose = (TICK * chance.randrange(1, 200) for _ in range(3))
        zone = chance.choice(zones)
        last = number == tpus
        began, saved, end = at + start, at + start + train, at + start + train + lose
        spans.append(Span(Kind.NODE, f"demo-tpu-g{number}", zone, at, None if last else end))
        heartbeats.append(heartbeat(
            incarnation=number, committed_at=saved, updated=end, timings={"first_step": began},
            phase=Phase.RUN, step=10,
        ))  # fmt: skip
        uses[at, began] = "starting" if number == 1 else "recovering"
        uses[began, end if last else saved] = "training"
        gap = 0 if last else TICK * chance.randrange(0, 30)
        if not last:
            uses[saved, end], uses[end, end + gap] = "lost", "recovering"
        at = end + gap
    return spec, kind, tuple(spans), heartbeats, uses, at


def by_hand(spec, kind, spans, uses, now):
    """Return cost by use, day and zone, each tick priced alone."""
    sums = {}
    for span in spans:
        region = span.zone.rsplit("-", 1)[0]
        address = vm_price("ip", "external ip vm", region)
        if span.kind is Kind.NODE:
            rate = tpu_price(kind, span.zone, spec.tpu.spot) + address
        else:
            disk = vm_price("disk", "pd-standard", region) * 50 / 730
            rate = vm_price("vm", "e2-small", region) + address + disk
        at = span.since
        while at < (span.until or now):
            use = next((u for (low, high), u in uses.items() if low <= at < high), "idle")
            day = f"day {(at - T0) // 86400:.0f}"
            for key in (use, day, span.zone):
                sums[key] = sums.get(key, 0.0) + rate * TICK / 3600
            at += TICK
    return sums


@pytest.mark.parametrize("seed", range(50))
def test_the_sums_are_those_of_a_calculation_by_hand(seed):
    """Within one per cent, by use, by day and by zone; and each of these adds up to the whole."""
    spec, kind, spans, heartbeats, uses, now = lifetime(random.Random(seed))
    found = cost_breakdown(spec, CATALOG, record(**existed(spans)), heartbeats, now)
    hand = by_hand(spec, kind, spans, uses, now)
    reported = {**found.uses, **found.zones}
    reported |= {f"day {number}": usd for number, usd in enumerate(found.days.values())}
    assert reported == pytest.approx(hand, rel=0.01)
    for sums in (found.uses, found.days, found.zones):
        assert sum(sums.values()) == pytest.approx(found.usd)
    assert found.usd == pytest.approx(cost_so_far(spec, CATALOG, record(**existed(spans)), now).known_usd)
    assert found.preemptions_usd == pytest.approx(hand.get("lost", 0) + hand.get("recovering", 0), rel=0.01)


SPEC = a_spec(tpu__type="v5litepod-8", watch__budget_usd=10.0, watch__ttl="2d")
NODE = Span(Kind.NODE, "demo-tpu-g1", "europe-west4-b", T0, T0 + 7200)
VM = Span(Kind.VM, "demo-vm", "europe-west4-b", T0)


def test_what_comes_after_the_end_is_idle():
    """A job that is done wastes nothing, but a TPU and a VM that stay cost on."""
    done = heartbeat(
        phase=Phase.DONE, timings={"first_step": T0 + 600}, progress_at=T0 + 3600, updated=T0 + 3700
    )
    found = cost_breakdown(SPEC, CATALOG, record(spans=(NODE, VM), started_at=T0), [done], T0 + 10800)
    assert set(found.uses) == {"starting", "training", "idle"}
    assert found.preemptions_usd == 0.0
    assert found.uses["idle"] > found.uses["training"] * 0.9


def test_without_a_report_the_use_is_not_known_and_not_called_training():
    """Unknown is not idle either."""
    found = cost_breakdown(SPEC, CATALOG, record(spans=(NODE,), started_at=T0), [], T0 + 10800)
    assert list(found.uses) == [Use.UNKNOWN.value]


@pytest.mark.parametrize(("phase", "uses"), [(Phase.RUN, {"starting", "not known"}),
    (Phase.SETUP, {"starting"}), (Phase.DONE, {"starting", "not known", "idle"})])  # fmt: skip
def test_a_job_that_tells_no_step_was_not_starting_all_the_time(phase, uses):
    """Nobody knows what its time went into, once it had been started."""
    spec = a_spec(vm="none")
    known = record(spans=(Span(Kind.NODE, "demo-tpu-g1", "us-central1-b", T0),), started_at=T0)
    reported = heartbeat(phase=phase, updated=T0 + 900, step=None, timings={"spawned": T0 + 300.0})
    found = cost_breakdown(spec, CATALOG, known, [reported], T0 + 3600)
    assert set(found.uses) == uses
    if phase is Phase.RUN:
        assert found.uses["not known"] == pytest.approx(found.usd * 3300 / 3600)


def test_a_tpu_that_never_saved_loses_all_of_its_work():
    """From its first step to its end."""
    after = Span(Kind.NODE, "demo-tpu-g2", "europe-west4-b", T0 + 7200)
    lost = heartbeat(timings={"first_step": T0 + 3600}, committed_at=None, updated=T0 + 7200)
    found = cost_breakdown(SPEC, CATALOG, record(spans=(NODE, after)), [lost], T0 + 7200)
    assert found.uses["lost"] == pytest.approx(found.usd / 2)


def test_the_way_to_ttl_and_budget_is_given_at_the_price_of_all_that_runs():
    """Two days in all, of which one hour is over; the budget ends it earlier."""
    running = Span(Kind.NODE, "demo-tpu-g1", "europe-west4-b", T0)
    here = {"zone": "europe-west4-b", "started_at": T0}
    found = cost_breakdown(SPEC, CATALOG, record(**existed((running, VM)), **here), [], T0 + 3600)
    hour = found.usd
    assert found.usd_hour == pytest.approx(hour)
    assert found.upper_usd_hour == pytest.approx(found.machines_upper_usd)
    assert found.ttl_remaining_s == 47 * 3600
    assert found.to_ttl_usd == pytest.approx(48 * hour)
    assert found.machines_upper_usd >= found.usd
    assert found.budget_lasts_s == pytest.approx((10 / found.machines_upper_usd - 1) * 3600)
    assert found.on_demand_usd > found.usd
    assert found.lower_saved_usd == pytest.approx(found.on_demand_usd - found.machines_upper_usd)
    over = cost_breakdown(
        SPEC, CATALOG, record(**existed((running, VM)), outcome=Outcome.DONE, **here), [], T0 + 3600
    )
    assert (over.ttl_remaining_s, over.to_ttl_usd) == (None, None)


def test_an_unknown_price_is_named_and_skipped():
    """The rest is still shown."""
    mars = Span(Kind.NODE, "demo-tpu-g1", "mars-central1-a", T0, T0 + 3600)
    found = cost_breakdown(SPEC, CATALOG, record(spans=(mars, VM)), [], T0 + 3600)
    assert "TPU v5litepod-8 in mars-central1-a" in found.unpriced
    assert found.usd > 0


def test_nothing_has_cost_nothing():
    """Before `up` there is no item, and no division by zero."""
    found = cost_breakdown(SPEC, CATALOG, record(started_at=0.0), [], T0)
    assert (found.usd, found.items, found.ttl_remaining_s, found.to_ttl_usd) == (0, (), None, None)


def test_storage_is_what_the_bucket_holds_since_it_was_written():
    """Ten GiB for half a month, in all sums: by resource, place, day and use; budgets leave it out."""
    retained = [StoredAmount(10.0, T0 - 365 * 3600)]
    found = cost_breakdown(SPEC, CATALOG, record(), [], T0, retained)
    usd = 10 * CATALOG.storage_price("europe-west4") / 2
    assert found.usd == pytest.approx(usd)
    assert [(item.what, item.zone) for item in found.items] == [("storage", "europe-west4")]
    assert found.zones == pytest.approx({"europe-west4": usd})
    assert found.uses == pytest.approx({"storage": usd})
    assert sum(found.days.values()) == pytest.approx(usd)
    assert list(found.days) == sorted(found.days)
    assert (found.storage_gib, found.machines_upper_usd, found.upper_usd) == (10.0, 0.0, found.usd)


def test_a_tpu_that_had_saved_its_last_step_has_lost_none():
    """After a notice the job saves and stops: the rest of the machine's time is the way back, and no lost work."""
    after = Span(Kind.NODE, "demo-tpu-g2", "europe-west4-b", T0 + 7200)
    uses = {}
    for step in (40, 41):
        saved = heartbeat(timings={"first_step": T0}, step=step, committed_step=40, committed_at=T0 + 3600)
        found = use_spans((NODE, after), [saved], T0 + 7200)
        uses[step] = [part.use for part in found if part.since == T0 + 3600]
    assert uses == {40: [Use.RECOVERING], 41: [Use.LOST]}


def existed(spans):
    """Return what the record has of machines; a VM that was never stopped had its disk for the same time."""
    return {"spans": spans, "disks": tuple(span for span in spans if span.kind is Kind.VM)}


def test_time_without_a_deployment_is_no_way_back():
    """Between `down` and the next `up` nothing was recovered from, and the second lifetime begins with a start."""
    first = Span(Kind.NODE, "demo-tpu-g1", "us-central1-b", T0, T0 + 3600)
    second = Span(Kind.NODE, "demo-tpu-g2", "us-central1-b", T0 + 90000, T0 + 93600)
    done = heartbeat(
        incarnation=1,
        phase=Phase.DONE,
        updated=T0 + 3600,
        progress_at=T0 + 3500,
        timings={"first_step": T0 + 100},
    )
    again = heartbeat(
        incarnation=2, phase=Phase.DONE, updated=T0 + 93600, progress_at=T0 + 93500,
        timings={"first_step": T0 + 90100},
    )  # fmt: skip
    known = record(spans=(first, second), up_times=(T0, T0 + 89990))
    found = cost_breakdown(SPEC, CATALOG, known, [done, again], T0 + 95000)
    assert set(found.uses) == {"starting", "training", "idle"}
    assert found.uses["starting"] == pytest.approx(found.usd * 200 / 7200)
    assert sum(found.uses.values()) == pytest.approx(found.usd)
    assert first_incarnations(known) == {1, 2}
    assert lifetimes(known, T0 + 93600) == ((T0, T0 + 3600), (T0 + 89990, T0 + 93600))


ON_ONE_TPU = Span(Kind.NODE, "demo-tpu-g1", "europe-west4-b", T0)
BEFORE_PUSH = Training(1, T0 + 60, T0 + 300, 0, 240)


@pytest.mark.parametrize(
    ("report", "uses"),
    [
        (
            {"step": 400, "resumed_from": 240, "timings": {"first_step": T0 + 340}, "progress_at": T0 + 500},
            [("starting", 0, 60), ("training", 60, 300), ("starting", 300, 340), ("training", 340, 600)],
        ),
        # 60 of 240 steps were not saved, and are made again.
        (
            {"step": 400, "resumed_from": 180, "timings": {"first_step": T0 + 340}, "progress_at": T0 + 500},
            [
                ("starting", 0, 60),
                ("training", 60, 240),
                ("repeated", 240, 300),
                ("starting", 300, 340),
                ("training", 340, 600),
            ],
        ),
        # The new code has made no step yet: the first step is still that of the attempt before.
        (
            {"step": None, "resumed_from": 240, "timings": {"first_step": T0 + 60, "spawned": T0 + 310}},
            [("starting", 0, 60), ("training", 60, 300), ("starting", 300, 600)],
        ),
        # Its agent has begun again, and not yet read where the job goes on.
        (
            {"step": None, "attempt": 1, "phase": Phase.BOOT, "timings": {"boot": T0 + 310}},
            [("starting", 0, 60), ("training", 60, 300), ("starting", 300, 600)],
        ),
        (
            {"step": None, "attempt": 1, "phase": Phase.DONE, "timings": {"boot": T0 + 310}},
            [("starting", 0, 60), ("training", 60, 300), ("idle", 300, 600)],
        ),
    ],
    ids=["saved", "not all saved", "no step yet", "boots", "done"],
)
def test_a_restart_on_the_same_tpu_takes_no_training_back(report, uses):
    """After a push the job trains on; only the gap between two attempts is no training."""
    known = heartbeat(**{"attempt": 2, "phase": Phase.RUN, "trained": (BEFORE_PUSH,), **report})
    found = use_spans((ON_ONE_TPU,), [known], T0 + 600)
    assert [(one.use.value, one.since - T0, one.until - T0) for one in found] == uses
