"""Another TPU in the deployment file: a new node takes the place of the old one, once."""

from dataclasses import replace

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Record, Span
from orchestrator.domain.tpu_shape import reshaped, shape_of, unwanted
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.decide import decide
from orchestrator.pricing.cost_breakdown import cost_breakdown
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.kit.records import changed
from tests.planning.worlds import NOW, ZONE, record, spec, world

SMALL, LARGE = shape_of(spec()), replace(shape_of(spec()), type="v5litepod-16")
RUNNING = record(shape=SMALL)


def test_the_shape_follows_what_a_node_cannot_change():
    """Type, runtime, price and address; where it may run is no part of it."""
    tpu = spec().tpu
    others = [{"type": "v5litepod-16"}, {"runtime": "v2"}, {"spot": False}, {"external_ip": False}]
    shapes = {shape_of(spec(tpu=replace(tpu, **other))) for other in others}
    assert len({SMALL, *shapes}) == 5
    assert shape_of(spec(tpu=replace(tpu, zones=tpu.zones[:1]))) == SMALL


def test_another_shape_replaces_the_node_under_a_new_incarnation():
    """The old one is deleted in the same pass, since it may hold the quota; the reason is said."""
    asked = reshaped(RUNNING, LARGE)
    plan = decide(spec(), world(), asked)
    assert [(c.verb, c.incarnation) for c in plan.changes] == [(Verb.DELETE, 1), (Verb.CREATE, 2)]
    assert str(LARGE) in plan.changes[0].message
    assert not unwanted(changed(asked, incarnation=2))


def test_the_same_shape_and_an_unknown_one_replace_nothing():
    """Records of earlier versions hold none; before the first node there is nothing to replace."""
    for retained in (RUNNING, changed(RUNNING, shape=None)):
        assert decide(spec(), world(), reshaped(retained, SMALL)).empty
    assert not unwanted(reshaped(changed(Record(), shape=SMALL), LARGE))


def test_what_a_tpu_has_cost_stays_when_the_file_asks_for_another_one():
    """Its hours keep the price of its own type and class; those of the next one have the new price."""
    catalog, hour = load_catalog(), 3600.0
    tpu = spec().tpu
    on_demand = spec(tpu=replace(tpu, type="v5litepod-16", spot=not tpu.spot))
    old = Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - hour, NOW)
    new = Span(Kind.NODE, "demo-tpu-g2", ZONE, NOW, NOW + hour)
    one, other = (cost_so_far(s, catalog, record(spans=(old,)), NOW).known_usd for s in (spec(), on_demand))
    assert one < other
    after = reshaped(record(shape=shape_of(spec()), spans=(old,)), shape_of(on_demand))
    after = changed(after, spans=(*after.spans, new))
    assert cost_so_far(on_demand, catalog, after, NOW + hour).known_usd == pytest.approx(one + other)
    reported = cost_breakdown(on_demand, catalog, after, [], NOW + hour)
    assert reported.usd == pytest.approx(one + other)
    assert sum(reported.zones.values()) == sum(reported.days.values()) == pytest.approx(one + other)
    assert {"TPU v5litepod-8", "TPU v5litepod-16"} <= {item.what for item in reported.items}
    retained = changed(after, bundle="b" * 64, agent="a" * 64, uploaded="", pushed="")
    assert decode(encode(retained, "demo"), "demo").spans == after.spans


def test_a_change_of_the_class_alone_keeps_the_price_of_before_too():
    """One type, in one zone, at two prices: both are in the sum, and nothing is priced like its neighbour."""
    catalog, spot = load_catalog(), spec(tpu=replace(spec().tpu, spot=True))
    full = spec(tpu=replace(spot.tpu, spot=False))
    spans = (Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 3600, NOW),)
    cheap, on_demand = (cost_so_far(s, catalog, record(spans=spans), NOW).known_usd for s in (spot, full))
    after = reshaped(record(shape=shape_of(spot), spans=spans), shape_of(full))
    both = changed(after, spans=(*after.spans, Span(Kind.NODE, "demo-tpu-g2", ZONE, NOW, NOW + 3600)))
    reported = cost_breakdown(full, catalog, both, [], NOW + 3600)
    assert reported.usd == pytest.approx(cheap + on_demand)
    assert reported.on_demand_usd == pytest.approx(2 * on_demand)
