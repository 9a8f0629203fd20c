"""Whoever writes to the bucket, such as a job or a compromised machine, stops nobody and steers nothing."""

import gzip
import itertools
import json
import math
from dataclasses import fields, replace

import pytest

from orchestrator.advice.explain.explain import explain
from orchestrator.advice.explain.explanation import DeploymentFacts
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.lease import Holder, held_by
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.ports import MAX_BYTES, StoredObject
from orchestrator.domain.record import Candidate
from orchestrator.domain.text.clean_text import clean
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.bucket.heartbeats import (
    Heartbeats,
    _readers,
    parse_heartbeat,
    worker_of,
)
from orchestrator.engine.bucket.race_claim import read_claim
from orchestrator.engine.loop.wake_object import WakeObject
from orchestrator.engine.publish.publisher import read_curve
from orchestrator.engine.reconcile import reconciler
from orchestrator.planning.decide import decide
from orchestrator.planning.update_record import update_record
from orchestrator.pricing.cost_breakdown import cost_breakdown
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.records import record_of
from tests.planning.worlds import node

NAME = ".tpuctl/heartbeat/1/0"
EVIL = [
    None, True, False, 0, 1, -1, 1.5, 10**9, 10**30, -(10**30), 1e20, 1e308, -1e308, math.inf, -math.inf,
    math.nan,
    "", "zz", "x" * 70_000, "\x1b]52;c;aGk=\x07", "\ud800", "../../etc/passwd", "a/b", "0", "true", [], [1],
    ["x"] * 70, [[]], {}, {"a": 1}, {"a": math.inf}, {"a": {"b": []}}, {"\x1b[2J": 5}, [None], [{}],
    "2026-01-01",
]  # fmt: skip
"""At least one value of each JSON type, at the ends of what fits, and text that steers a terminal."""
WHOLE = {
    "schema": 1, "deployment": "demo", "incarnation": 1, "worker": 0, "workers": 1, "bundle": "b" * 64,
    "phase": "run",
    "step": 40, "began_step": 0, "loss": 1.5, "committed_step": 32, "committed_at": 1.0e9, "resumed_from": None,
    "attempt": 1, "attempts": 1, "failures": 0, "exit_code": None, "progress_at": 1.0e9, "notice": False,
    "preempted": False, "save_interval": 30.0, "message": "", "timings": {"boot": 1.0e9},
}  # fmt: skip


@pytest.fixture
def lab(tmp_path):
    """Return a local cloud of its own."""
    return EngineLab(tmp_path)


def stored(body, name=NAME, updated=1.0e9):
    """Return a report as the bucket shows it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return StoredObject(name, len(data), 1, updated, data)


def forgeries():
    """Yield every field of a report with every value, alone and two at a time, and without the field."""
    names = sorted({*WHOLE, *(f.name for f in fields(Heartbeat))} - {"updated"})
    for number, name in enumerate(names):
        yield {key: value for key, value in WHOLE.items() if key != name}
        for value in EVIL:
            yield {**WHOLE, name: value}
            for other in names[number + 1 :: 7]:
                for also in EVIL[number % 3 :: 3]:
                    yield {**WHOLE, name: value, other: also}


def fits(heartbeat):
    """Return whether a report holds only what the rest of tpuctl may reckon with."""
    numbers = [getattr(heartbeat, f.name) for f in fields(heartbeat)]
    plain = [n for n in numbers if isinstance(n, int | float)] + list(heartbeat.timings.values())
    texts = [
        getattr(heartbeat, f.name) for f in fields(heartbeat) if isinstance(getattr(heartbeat, f.name), str)
    ]
    return (
        all(math.isfinite(n) and abs(n) <= 1e30 for n in plain)
        and all(len(t) <= 4200 and t == clean(t) for t in texts)
        and 0 <= heartbeat.worker < heartbeat.workers <= 4096
    )


def test_every_field_times_every_type(lab):
    """Thousands of forged reports: each is read as one that fits, or as none, and orders nothing."""
    controller = lab.up()
    lab.wait(60)
    world, record, spec = controller.one_pass().world, controller.record, controller.spec
    catalog = load_catalog()
    tried = read = 0
    for body in forgeries():
        tried += 1
        try:
            heartbeat = parse_heartbeat(stored(body))
        except ValueError:
            continue
        read += 1
        assert fits(heartbeat), body
        if read % 5:
            continue
        observed = replace(world, heartbeats=Present((heartbeat,)))
        learned = update_record(record, observed)
        plan = decide(spec, observed, learned, 0.0)
        explain(DeploymentFacts(spec, observed, learned, plan))
        cost_breakdown(spec, catalog, learned, [heartbeat], world.observed_at)
        # A machine may say that its job is done or has failed, or ask to be looked after: nothing else.
        made = [c for c in plan.changes if c.verb is Verb.CREATE and c.kind is not Kind.JOB]
        assert not made, body
    assert tried >= 5000
    assert read > 500


def test_each_type_of_a_field_has_its_model():
    """A field that is added to the report is held to its type, or this fails."""
    assert set(_readers()) == {f.name for f in fields(Heartbeat)} - {"updated"}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"phase": ' + b"[" * 100_000, b"\xff\xfe", b"1" * 5000,
        json.dumps({**WHOLE, "worker": 1, "workers": 2}).encode(),
        json.dumps({**WHOLE, "incarnation": 2}).encode(),
        json.dumps({**WHOLE, "workers": 10**9}).encode(), json.dumps({**WHOLE, "phase": "unknown"}).encode(),
        json.dumps({**WHOLE, "message": "x" * (64 << 10)}).encode(),
        gzip.compress(json.dumps(WHOLE).encode()),
    ],
)  # fmt: skip
def test_what_is_no_report_is_none(data):
    """Too deep, too long, packed, another worker's, of a slice that cannot be."""
    with pytest.raises(ValueError):  # noqa: PT011 - the reason differs, the refusal does not
        parse_heartbeat(stored(data))


@pytest.mark.parametrize(
    "name", ["1/4096", "1/-1", "1/0/0", "01/0", "1/00", "x/0", "1/", "1/0\n", "9999999999/0", "1/\u0661"]
)
def test_a_name_that_is_no_workers_is_no_report(name):
    """Only names that the agent writes are read."""
    assert worker_of(f".tpuctl/heartbeat/{name}") is None
    assert worker_of(".tpuctl/heartbeat/12/4095") == (12, 4095)


@pytest.mark.parametrize(
    "forged",
    [{"committed_at": "zz"}, {"timings": 5}, {"progress_at": "zz"}, {"message": [1]}, {"loss": "x"},
     {"workers": 10**9}, {"workers": None}, {"workers": 1.5}, {"attempts": "x"}],
)  # fmt: skip
def test_one_bad_report_is_unknown_for_its_worker_only(lab, forged):
    """The others are read, the watch goes on, and nothing is made or deleted for it."""
    controller = lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    lab.wait(60)
    controller.one_pass()
    before = lab.mutations()
    lab.put(".tpuctl/heartbeat/1/2", json.dumps({**WHOLE, "worker": 2, "workers": 4, **forged}).encode())
    heartbeats = controller.one_pass().world.heartbeats.value
    assert [b.worker for b in heartbeats if b.phase is Phase.UNKNOWN] == [2]
    assert [b.worker for b in heartbeats if b.phase is Phase.RUN] == [0, 1, 3]
    assert lab.mutations() == before


@pytest.mark.parametrize("forged", [{"committed_at": "zz"}, {"workers": 10**9}, {"message": "\ud800"}])
def test_the_time_to_live_ends_a_deployment_whatever_its_machines_write(lab, forged):
    """A report that cannot be read, written again and again, keeps no TPU alive."""
    controller = lab.up(one_zone_spec(watch__ttl="1h"))
    report = lab.machines.report

    def forge():
        report()
        lab.put(NAME, json.dumps({**WHOLE, **forged}).encode())

    lab.machines.report = forge
    forge()
    result = controller.loop.run(lambda result: result.plan.outcome is not None)
    assert result.plan.outcome is Outcome.LIMIT_REACHED
    controller.loop.run(lambda result: not lab.nodes())
    assert lab.nodes() == {}


@pytest.mark.parametrize("part", ["update_record", "decide"])
def test_a_fault_that_reports_bring_about_leaves_budget_and_ttl(lab, monkeypatch, part):
    """Whatever no model has foreseen: the pass is made again without the reports."""
    controller = lab.up(one_zone_spec(watch__ttl="1h"))
    real = getattr(reconciler, part)

    def faulty(*arguments):
        world = next(a for a in arguments if hasattr(a, "heartbeats"))
        if isinstance(world.heartbeats, Present) and world.heartbeats.value:
            raise OverflowError("a bug of ours")
        return real(*arguments)

    monkeypatch.setattr(reconciler, part, faulty)
    lab.wait(60)
    result = controller.one_pass()
    assert isinstance(result.world.heartbeats, Unknown)
    assert any("please report it (OverflowError" in event.message for event in controller.events)
    lab.clock.advance(3600)
    assert controller.one_pass().plan.outcome is Outcome.LIMIT_REACHED


def test_faults_that_alternate_are_each_reported_once(lab, monkeypatch):
    """Machines that take turns in two bad reports do not fill the log of events."""
    controller, whole = lab.up(), reconciler.decide
    turns = itertools.cycle([OverflowError("one"), LookupError("another")])

    def faulty(spec, world, *more):
        if isinstance(world.heartbeats, Present) and world.heartbeats.value:
            raise next(turns)
        return whole(spec, world, *more)

    monkeypatch.setattr(reconciler, "decide", faulty)
    for _ in range(6):
        lab.wait(60)
        assert isinstance(controller.one_pass().world.heartbeats, Unknown)
    assert len([e for e in controller.events if "reports are left out" in e.message]) == 2


def test_a_fault_in_showing_a_pass_ends_no_watch(lab):
    """What is printed, published or sent is no part of what enforces the budget."""
    controller = lab.up(one_zone_spec(watch__ttl="1h"))

    def broken(result):
        raise OverflowError("a number that cannot be drawn")

    result = controller.loop.run(lambda result: result.plan.outcome is not None, broken)
    assert result.plan.outcome is Outcome.LIMIT_REACHED
    assert [e.kind for e in controller.events if "could not be shown" in e.message] == ["failure"]


def test_a_fault_in_showing_a_pass_stops_neither_notifications_nor_the_status(lab):
    """Notifications go out, and the status is published, whatever cannot be drawn; it is reported once."""
    controller, observed = lab.up(one_zone_spec(watch__ttl="1h")), []

    def broken(result):
        raise OverflowError("a number that cannot be drawn")

    def odd(result):
        raise ValueError("another")

    controller.loop.run(lambda result: result.plan.outcome is not None, broken, odd, observed.append)
    assert len(observed) > 1
    reported = [e.message for e in controller.events if "could not be shown" in e.message]
    assert len(reported) == 2, reported


def test_an_object_is_read_up_to_its_limit_and_never_unpacked(lab):
    """What machines write may be of any size, and packed so that it comes out a thousand times as large."""
    controller = lab.up()
    store = controller.cloud.store
    lab.put("big", b"x" * (6 << 20))
    assert len(store.read("big").data) == MAX_BYTES
    assert len(store.read("big", 5 << 20).data) == 1 << 20
    assert store.read("big", limit=10).data == b"x" * 10
    assert store.read("big", 100, 10).data == b"x" * 10
    lab.put("small", b"abc")
    assert store.read("small").data == b"abc"
    assert store.read("small", limit=3).data == b"abc"
    assert store.read("small", limit=2).data == b"ab"
    assert store.read("small", 3).data == b""
    packed = gzip.compress(b"0" * (50 << 20))
    with lab.storage.lock:
        body = {"contentEncoding": "gzip"}
        lab.storage.objects.insert(lab.bucket, "packed", packed, body, Preconditions())
    assert store.read("packed").data == packed
    assert store.read("packed", 5).data == packed[5:]


def test_a_large_report_is_not_even_read(lab):
    """Its size is in the list."""
    controller = lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    lab.wait(60)
    controller.one_pass()
    lab.put(".tpuctl/heartbeat/1/3", b"x" * (65 << 10))
    before = lab.cloud.calls["storage.objects.get"]
    heartbeats = controller.one_pass().world.heartbeats.value
    assert "66560 bytes" in heartbeats[3].message
    assert lab.cloud.calls["storage.objects.get"] == before


def test_one_look_reads_few_bytes_whatever_machines_write(lab, monkeypatch):
    """What is read leaves the cloud for money: large reports of many workers, a large call, a claim."""
    controller = lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    lab.wait(60)
    controller.one_pass()
    read, taken = type(controller.cloud.store).read, []

    def counted(self, name, *words, **more):
        found = read(self, name, *words, **more)
        taken.append(len(found.data) if found is not None else 0)
        return found

    monkeypatch.setattr(type(controller.cloud.store), "read", counted)
    store = controller.cloud.store
    for worker in range(100):
        lab.put(f".tpuctl/heartbeat/7/{worker}", b"x" * (60 << 10))
    heartbeats = Heartbeats(store).read(7)
    assert isinstance(heartbeats, Unknown)
    assert sum(taken) <= 4 << 20
    lab.put(".tpuctl/heartbeat/7/0", stored({**WHOLE, "incarnation": 7}, ".tpuctl/heartbeat/7/0").data)
    phases = [heartbeat.phase for heartbeat in Heartbeats(store).read(7).value]
    assert (phases[0], len(phases), set(phases[1:])) == (Phase.RUN, 100, {Phase.UNKNOWN})
    taken.clear()
    lab.put(".tpuctl/wake/7", b"x" * (3 << 20))
    lab.put(".tpuctl/claim/7", b"x" * (3 << 20))
    assert WakeObject(one_zone_spec(), store, lab.clock).written(7)
    assert read_claim(store, 7, record_of(incarnation=7, round=7), Present(())) == Absent()
    assert sum(taken) < 4 << 10


@pytest.mark.parametrize("value", [*EVIL, 7, 8, 9, 10, 1006, 7.0, "7"])
def test_a_forged_claim_names_no_winner(lab, value):
    """A TPU that was asked for in this race, or was observed with its label, or nobody has won."""
    controller = lab.up()
    lab.put(".tpuctl/claim/7", json.dumps({"incarnation": value}).encode())
    asked = record_of(incarnation=7, round=7, rivals=(Candidate(8, "z", 1.0),))
    ours, other = node(9, labels={"tpuctl-round": "7"}), node(10, labels={"tpuctl-round": "6"})
    observed = read_claim(controller.cloud.store, 7, asked, Present((ours, other)))
    assert isinstance(observed, Present if type(value) is int and value in {7, 8, 9} else Absent)
    whole = type(value) is int and value not in {7, 8}
    hidden = read_claim(controller.cloud.store, 7, asked, Unknown("no answer"))
    assert isinstance(hidden, Unknown) == whole, "who may be there is not passed over"


def planted(race):
    """What a machine can leave for a race to come: nothing, no claim, no TPU, one that may be."""
    far = [b'{"incarnation": %d}' % number for number in (999999999, 999, race + 999, race + 3, race - 1)]
    return [b"", b"[]", *far, b'{"incarnation": true}', b'{"incarnation": 1e999}']


@pytest.mark.parametrize("kind", range(len(planted(0))))
def test_claims_of_a_lost_machine_stop_no_later_race(lab, kind):
    """It wrote them for the races to come: nobody would have won, or a TPU that never was."""
    spec = one_zone_spec(tpu__strategy="race", tpu__zones=["europe-west4-b", "europe-west4-a"])
    lab.up(spec).lease.release()
    lab.wait(60)
    for race in range(2, 40):
        lab.put(f".tpuctl/claim/{race}", planted(race)[kind])
    (lost,) = lab.nodes()
    lab.cloud.preempt(lost, notice=False)
    controller = lab.controller(spec)
    for _ in range(40):
        lab.wait(30)
        controller.one_pass()
    assert controller.record.race.claimed
    assert [state.name for state in lab.nodes().values()] == ["READY"]
    assert controller.record.node.incarnation < 6
    assert lab.machines.running


LEASE = {"schema": 1, "id": "a", "who": "a@b", "command": "watch", "since": 1.0e9, "pid": 1, "boot": "b",
         "space": "c", "yields": ["down"]}  # fmt: skip


@pytest.mark.parametrize("field", sorted(LEASE))
def test_a_forged_lease_is_somebodys_and_no_more(field):
    """It holds us up, as any lease does; it ends no command with a fault."""
    for value in EVIL:
        data = json.dumps(with_checksum({**LEASE, field: value})).encode()
        holder = Holder.from_json(data)
        error = held_by(holder, 1.0)
        assert error.message == clean(error.message)
        assert len(error.message) < 500
    assert Holder.from_json(json.dumps(with_checksum(LEASE)).encode()).who == "a@b"


@pytest.mark.parametrize("value", EVIL)
def test_a_forged_curve_is_drawn_or_skipped(lab, value):
    """Points of a curve are numbers, or there is no curve."""
    controller = lab.up()
    for point in ([value, 1, 1.0, 1], [1.0, value, 1.0, 1], [1.0, 1, value, 1], [1.0, 1, 1.0, value], value):
        lab.put(".tpuctl/curve.json", json.dumps(with_checksum({"schema": 1, "points": [point]})).encode())
        for at, step, loss, incarnation in read_curve(controller.cloud.store):
            assert math.isfinite(at)
            assert 0 <= step <= 1 << 53
            assert loss is None or (math.isfinite(loss) and abs(loss) <= 1e30)
            assert isinstance(incarnation, int)
