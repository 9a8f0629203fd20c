"""What a deadline weighs: the real prices of each zone, and what is remembered of it."""

from dataclasses import replace

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.catalog import Price
from orchestrator.domain.machines.capacity import after_grant, after_preemption, after_refusal
from orchestrator.domain.machines.node_price import Prices, prices
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Kind, Verb
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.deadline import Mode
from orchestrator.planning.tpu.on_demand import SPOT_PRICE, situation, to_leave
from tests.planning.test_on_demand import HOUR, KNOWN, begun, due
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, world

KIND = "v5litepod-8"


def priced(spot, on_demand_usd, *, zone=ZONE, way=None):
    """Return the prices of one zone."""
    return Prices({(KIND, zone): Price(on_demand_usd, spot)}, {zone: way} if way else {})


def offers(table, *, history=(), **shown):
    """Return the offers of a deployment whose TPU is gone, by zone, and the price of on demand."""
    found = situation(
        due(), world(nodes=Present(()), prices=table, **shown), begun(1, type=KIND, capacity_history=history)
    )
    return {offer.zone: offer for offer in found.offers}, found.on_demand_usd_hour


def test_the_prices_are_those_of_the_table():
    """Of the type, in each zone; spot differs between zones though on demand does not."""
    catalog = load_catalog()
    found, on_demand_usd = offers(prices(catalog, [KIND], [ZONE, OTHER_ZONE], "us-central1"))
    assert on_demand_usd == catalog.tpu_price(KIND, ZONE, spot=False)
    assert found[ZONE].usd_hour == catalog.tpu_price(KIND, ZONE, spot=True)


def test_the_way_to_the_bucket_is_part_of_the_price():
    """Ten GiB an hour, for spot and on demand alike."""
    found, on_demand_usd = offers(priced(2.0, 9.0, way=0.05))
    assert (found[ZONE].usd_hour, on_demand_usd) == (2.5, 9.5)


@pytest.mark.parametrize(
    ("table", "usd", "on_demand_usd"),
    [
        (Prices(), SPOT_PRICE, 1.0),
        (priced(None, 10.0), 10.0 * SPOT_PRICE, 10.0),
        (priced(4.0, None), 4.0, 4.0 / SPOT_PRICE),
        (priced(2.0, 9.0, zone=OTHER_ZONE), 2.0, 9.0),
    ],
)
def test_an_unknown_price_is_guessed_from_what_is_known(table, usd, on_demand_usd):
    """From the other one of the zone, or from another zone; without any only the ratio counts."""
    found, on_demand = offers(table)
    assert (found[ZONE].usd_hour, on_demand) == (usd, on_demand_usd)


def test_what_is_remembered_of_a_zone_counts_for_it_alone():
    """How often spot was there by the hour, and how long TPUs lived."""
    history = after_preemption(
        after_grant((), ZONE, KIND, NOW - 50 * HOUR), ZONE, KIND, NOW - 30 * HOUR, 20 * HOUR
    )
    for hour in range(8):
        history = after_refusal(history, OTHER_ZONE, KIND, NOW - 40 * HOUR + hour * HOUR)
    found, _ = offers(Prices(), history=history)
    plain, _ = offers(Prices())
    assert found[ZONE].lifetime > plain[ZONE].lifetime == found[OTHER_ZONE].lifetime
    assert found[OTHER_ZONE].available < 0.2 < plain[OTHER_ZONE].available < found[ZONE].available


def on_demand_since(hours_remaining, table):
    """Say why and for what a TPU on demand is left, with so many hours of work left and twelve of slack."""
    known = replace(KNOWN, step=int(1000 - hours_remaining * 100))
    was = begun(2, type=KIND, on_demand=(1,), progress=known)
    report = heartbeat(step=known.step, committed_step=known.step, timings={"first_step": NOW - HOUR})
    observed = world(nodes=Present((node(),)), heartbeats=Present((report,)), prices=table)
    return to_leave(due(f"{2 + hours_remaining + 12}h"), observed, was)


def test_on_demand_gives_way_to_spot_only_when_the_saving_exceeds_what_the_change_costs():
    """The same job and slack: it depends on the price of spot, and on how much work is left."""
    choice = on_demand_since(4, priced(3.0, 9.6))
    assert ("spot is back" in choice.message, choice.mode) == (True, Mode.SPOT)
    assert on_demand_since(4, priced(9.4, 9.6)) is None
    assert on_demand_since(0.1, priced(3.0, 9.6)) is None


def test_of_zones_that_are_as_good_the_cheap_one_is_asked_first():
    """The file's order decides only where the prices are the same."""
    table = Prices({(KIND, ZONE): Price(9.0, 5.0), (KIND, OTHER_ZONE): Price(9.0, 1.0)})
    observed = world(nodes=Present(()), heartbeats=Present(()), prices=table)
    was = begun(0.5, requested_at=0.0, accepted=False)
    plan = decide(due(), observed, was)
    (made,) = [c for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.CREATE)]
    assert made.zone == OTHER_ZONE
    assert f"{ZONE} costs more" in made.message
