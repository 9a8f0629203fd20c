"""Zones away from the bucket: what the way costs, and that they are asked later."""

from dataclasses import replace

import pytest

from orchestrator.advice.preview import preview
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.catalog import Price
from orchestrator.domain.level import Level
from orchestrator.domain.machines.capacity import after_refusal
from orchestrator.domain.machines.node_price import FAR, Prices, egress_usd, prices
from orchestrator.planning.tpu.next_zone import next_zone, zone_order, zone_text
from orchestrator.planning.whole_plan import plan_from_nothing
from orchestrator.pricing.cost import hourly
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import NOW, record

HERE, BESIDE, AWAY = "europe-west4-b", "europe-west4-a", "us-west4-a"
KIND = "v5litepod-8"
MIXED = {"tpu__type": KIND, "tpu__zones": [HERE, AWAY, BESIDE], "tpu__across_regions": True}
CATALOG = load_catalog()

WAYS = [
    ("europe-west4", "europe-west4", 0.0),
    ("europe-west4", "europe-west1", 0.02),
    ("us-west4", "northamerica-northeast1", 0.02),
    ("us-west4", "europe-west4", 0.05),
    ("europe-west4", "eu", 0.02),
    ("us-west4", "eu", 0.05),
    ("asia-east1", "asia-south1", 0.08),
    ("asia-east1", "us-west4", 0.08),
    ("southamerica-east1", "asia-east1", 0.14),
    ("me-west1", "europe-west4", None),
]


def known(**overrides):
    """Return a deployment with the prices of the table."""
    spec = a_spec(**MIXED, **overrides)
    return spec, prices(CATALOG, [KIND], spec.tpu.zones, names.home_region(spec))


@pytest.mark.parametrize(("region", "bucket", "usd"), WAYS)
def test_the_way_has_the_price_of_the_table(region, bucket, usd):
    """Nothing within a region; a multi-region counts as another region of its continent."""
    assert egress_usd(CATALOG, region, bucket) == usd


def test_zones_beside_the_bucket_are_asked_first_wherever_the_file_names_them():
    """And why is said."""
    spec, table = known()
    past = record(incarnation=0, zone="", type=KIND)
    assert zone_order(spec, past, NOW, table) == (HERE, BESIDE, AWAY)
    assert zone_order(spec, past, NOW) == (HERE, AWAY, BESIDE)
    assert zone_text(spec, past, NOW, BESIDE, table).endswith(f"{AWAY} is far from the bucket")
    assert zone_text(spec, past, NOW, HERE, table) == ""


def test_a_refusal_beside_the_bucket_sends_the_next_one_away_until_it_is_old():
    """The capacity history decides; the last zone does not hold the TPU away for ever."""
    spec, table = known()
    history = after_refusal((), HERE, KIND, NOW)
    history = after_refusal(history, BESIDE, KIND, NOW)
    past = record(zone=AWAY, type=KIND, capacity_history=history)
    assert next_zone(spec, past, NOW, table) == AWAY
    assert next_zone(spec, past, NOW + 6 * 3600, table) == HERE


def test_the_price_of_traffic_counts_by_the_price_of_the_tpu():
    """Where an hour of traffic costs as much as the TPU, the zone is worth half; unknown prices count too."""
    way = {AWAY: 0.1}
    expensive, cheap = (Prices({(KIND, AWAY): Price(9.0, usd)}, way) for usd in (100.0, 1.0))
    assert expensive.nearness(KIND, AWAY, spot=True) == FAR
    assert cheap.nearness(KIND, AWAY, spot=True) == pytest.approx(0.5)
    assert Prices({}, {AWAY: None}).nearness(KIND, AWAY, spot=True) == FAR
    assert Prices({}, {AWAY: 0.0}).nearness(KIND, AWAY, spot=True) == 1.0


MISTAKES = [
    ({"tpu__across_regions": False}, "tpu.zones[1]", "not in the same region"),
    ({"job__run_on": "vm"}, "job.run_on", "the VM's region"),
    ({"bucket__location": "us-west4"}, "bucket.location", "nor a multi-region"),
    ({"vm__zone": "us-west4-a"}, "vm.zone", "outside the TPU's region europe-west4"),
    ({"tpu__across_regions": False, "tpu__zones": [HERE], "tpu__strategy": "race-regions"},
     "tpu.strategy", "several regions"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "key", "words"), MISTAKES)
def test_what_cannot_be_across_regions_is_refused(overrides, key, words):
    """Each mistake once, at its key."""
    (found,) = [p for p in run_rules(a_spec(**{**MIXED, **overrides}), CATALOG) if p.level is Level.STOP]
    assert (found.setting, words in found.message) == (key, True)


@pytest.mark.parametrize("overrides", [{}, {"bucket__location": "EU"}, {"tpu__strategy": "race-regions"}])
def test_several_regions_are_accepted_where_the_file_says_so(overrides):
    """With the bucket in the first region, or in a multi-region."""
    assert [p for p in run_rules(a_spec(**MIXED, **overrides), CATALOG) if p.level is Level.STOP] == []


def test_the_plan_says_where_the_bucket_is_and_what_the_way_costs():
    """For people and for programs."""
    spec = a_spec(**MIXED)
    plan = plan_from_nothing(spec, CATALOG.accelerator(KIND), "code", "agent")
    shown = preview(spec, plan, CATALOG).as_dict()
    assert (shown["bucket_location"], shown["egress_usd_gib"]) == ("europe-west4", {"us-west4": 0.05})
    assert (make_bucket(shown)["location"]) == "europe-west4"
    one = a_spec(tpu__type=KIND, tpu__zones=[HERE, BESIDE])
    assert preview(one, plan, CATALOG).as_dict()["egress_usd_gib"] == {}


def make_bucket(shown):
    """Return the details of the bucket's creation."""
    return next(c["details"] for c in shown["changes"] if c["kind"] == "bucket")


def test_vm_and_storage_have_the_prices_of_their_own_region():
    """While the TPU is elsewhere."""
    spec = a_spec(**MIXED)
    away, here = hourly(spec, CATALOG, AWAY), hourly(spec, CATALOG, HERE)
    assert away.storage_usd_gib_month == here.storage_usd_gib_month == CATALOG.storage_price("europe-west4")
    vm = [[line for line in one.lines if line.meter.value != "node"] for one in (away, here)]
    assert vm[0] == vm[1]
    multi = replace(spec, bucket=replace(spec.bucket, location="us"))
    assert hourly(multi, CATALOG, AWAY).storage_usd_gib_month == 0.026
