"""The capacity history in an object of its own: it outlives the record, and is written seldom."""

import json
from itertools import pairwise

import pytest

from orchestrator.contract.bucket import object_names
from orchestrator.domain.machines.capacity import (
    ZoneHistory,
    after_grant,
    after_preemption,
    after_refusal,
    merged,
    zone_history,
)
from orchestrator.engine.records.capacity_history import WRITE_INTERVAL, decoded, encoded
from orchestrator.engine.records.record_format import decode, encode
from tests.engine.engine_lab import OTHER_ZONE, ZONE, one_zone_spec

SPEC = one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE], vm="none")
KIND = "v5litepod-8"


def retained(lab):
    """Return what the object holds of the first zone."""
    return zone_history(decoded(lab.get(object_names.CAPACITY)), ZONE, KIND)


def writes(lab, spec=SPEC, seconds=900.0):
    """Return when the object was written while a loop ran in a cloud without capacity."""
    times = []

    before = [None]

    def note(_):
        if before[0] != lab.get(object_names.CAPACITY):
            times.append(lab.clock.now())
        before[0] = lab.get(object_names.CAPACITY)

    lab.wire.after = note
    controller = lab.controller(spec)
    controller.want()
    controller.run(seconds=seconds, passes=1000)
    return controller, times


def test_a_long_stockout_is_written_once_a_minute_at_most_and_calm_not_at_all(lab):
    """Each refusal changes the history, the object follows; when nothing happens nothing is written."""
    lab.change(stockouts=frozenset({ZONE, OTHER_ZONE}))
    controller, times = writes(lab)
    assert 5 <= len(times) <= 900 / WRITE_INTERVAL + 1
    assert min(later - earlier for earlier, later in pairwise(times)) >= WRITE_INTERVAL
    assert retained(lab).refused >= 5
    lab.change(stockouts=frozenset())
    controller.up()
    lab.wait(120)
    controller.run(seconds=300, passes=1000)
    before = lab.get(object_names.CAPACITY)
    controller.run(seconds=20 * WRITE_INTERVAL, passes=1000)
    assert lab.get(object_names.CAPACITY) == before


def remembering(lab):
    """Run a deployment that was refused in its first zone, and return what it remembers."""
    lab.change(stockouts=frozenset({ZONE}))
    controller = lab.up(SPEC)
    lab.wait(WRITE_INTERVAL + 1)
    controller.run(seconds=120)
    assert retained(lab).refused
    return controller


@pytest.mark.parametrize("damage", ["torn", "gone", "journal gone too"])
def test_a_lost_record_does_not_lose_the_memory(lab, damage):
    """The next loop has it back in its first pass, whatever became of the record."""
    controller = remembering(lab)
    (lab.folder / "state" / "record.json").unlink()
    if damage == "torn":
        lab.put(object_names.RECORD, b"{")
    else:
        controller.cloud.store.delete(object_names.RECORD)
    if damage.startswith("journal"):
        for name in lab.objects(object_names.JOURNAL):
            controller.cloud.store.delete(name)
    later = lab.controller(SPEC)
    assert later.record.capacity_history == ()
    later.want()
    later.one_pass()
    assert zone_history(later.record.capacity_history, ZONE, KIND).refused == retained(lab).refused


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"schema": 2, "places": []}', b'{"schema": 1, "places": 7}']
)
def test_a_damaged_object_counts_as_empty_and_is_written_again(lab, data):
    """And no pass stops for it."""
    assert decoded(data) == ()
    controller = remembering(lab)
    lab.put(object_names.CAPACITY, data)
    later = lab.controller(SPEC)
    later.run(seconds=60)
    assert later.record.capacity_history == controller.record.capacity_history
    assert retained(lab).refused


def test_what_another_has_written_in_between_is_read_and_not_lost(lab):
    """The generation is a precondition: both entries are there in the end."""
    controller = remembering(lab)
    now = lab.clock.now()
    other = after_grant((), "us-west4-a", KIND, now)
    lab.put(object_names.CAPACITY, encoded(other))
    lab.cloud.preempt(f"demo-tpu-g{controller.record.node.incarnation}", notice=False)
    controller.up()
    lab.wait(120)
    controller.run(seconds=300)
    assert zone_history(controller.record.capacity_history, "us-west4-a", KIND).granted == 1
    found = decoded(lab.get(object_names.CAPACITY))
    assert {one.zone for one in found} == {ZONE, OTHER_ZONE, "us-west4-a"}


def test_a_store_that_refuses_stops_no_pass(lab, monkeypatch):
    """The history is a help, not a duty."""
    from orchestrator.errors import TransientError

    controller = lab.up(SPEC)

    def refuse(name, *_, **__):
        if name == object_names.CAPACITY:
            raise TransientError("no")
        return real(name, *_, **__)

    real = controller.cloud.store.write
    monkeypatch.setattr(controller.cloud.store, "write", refuse)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    assert controller.record.node.incarnation == 2


def test_the_later_event_of_two_memories_counts_and_none_of_the_future():
    """Zone by zone; the same memory stays the same object."""
    old, new = after_refusal((), ZONE, KIND, 100.0), after_refusal((), ZONE, KIND, 200.0)
    assert merged(old, new, 300.0) == new
    assert merged(new, old, 300.0) is new
    assert merged(old, new, 150.0) is old
    assert merged((), (ZoneHistory(ZONE),), 300.0) == ()
    assert {p.zone for p in merged(old, after_grant((), OTHER_ZONE, KIND, 50.0), 300.0)} == {ZONE, OTHER_ZONE}


def test_a_preemption_is_counted_under_the_keys_of_every_release(lab):
    """Watchers and agents of other releases read and write the same object."""
    history = after_preemption((), ZONE, KIND, 100.0, 60.0)
    (zone,) = json.loads(encoded(history))["places"]
    assert (zone["lives"], zone["out_by_loss"], zone["lived"]) == (1, True, 60.0)
    assert zone.keys().isdisjoint({"preemptions", "out_by_preemption"})
    assert decoded(encoded(history)) == history


def test_a_record_of_before_keeps_its_memory(lab):
    """An older tpuctl stored it in the record only."""
    controller = remembering(lab)
    history = controller.record.capacity_history
    assert decode(encode(controller.record, "demo"), "demo").capacity_history == history
    controller.cloud.store.delete(object_names.CAPACITY)
    later = lab.controller(SPEC)
    later.run(seconds=60)
    assert later.record.capacity_history == history
    assert decoded(lab.get(object_names.CAPACITY)) == history
