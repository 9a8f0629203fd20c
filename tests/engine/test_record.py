"""The record and the journal: what a killed, a second or a confused controller finds."""

import json
from dataclasses import replace

import pytest

from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.errors import (
    ConflictError,
    LeaseHeldError,
    TpuctlError,
    TransientError,
)
from orchestrator.google.objects import GcsStore
from tests.engine.engine_lab import ZONE, one_zone_spec
from tests.kit.records import changed

READ = GcsStore.read


def test_of_two_controllers_the_slower_one_is_refused(lab):
    """The second write with an old generation says that somebody else acts, and makes no call."""
    first = lab.up()
    second = lab.controller(state="another computer")
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    second.up()
    before = lab.mutations()
    with pytest.raises(LeaseHeldError):
        first.up()
    assert lab.mutations() == before


def test_what_was_refused_does_not_count_as_newer_here(lab):
    """The refused change of the slower controller is on no disk: started again, it knows what the other did."""
    first = lab.up()
    second = lab.controller(state="another computer")
    second.records.update(lambda record: changed(record, preemptions=3))
    with pytest.raises(LeaseHeldError):
        first.records.update(lambda record: changed(record, preemptions=8))
    assert lab.controller().record.node.preemptions == 3


@pytest.mark.parametrize("lost", [["drop-answer"], ["drop-answer", "drop-answer"]])
def test_a_write_of_our_own_with_a_lost_answer_is_no_second_controller(lab, lost):
    """The record's generation has moved on without an answer; the next write finds its own hand there."""
    controller = lab.up()
    lab.cloud.fail_next("storage.objects.insert", lost)
    for number in range(len(lost)):
        with pytest.raises(TransientError):
            controller.records.update(lambda record, number=number: changed(record, preemptions=10 + number))
    controller.records.update(lambda record: changed(record, preemptions=99))
    assert lab.controller(state="another computer").record.node.preemptions == 99


def test_the_copy_in_the_bucket_is_the_record(lab):
    """Before the bucket exists the copy here is the record; later the bucket's, whatever an old one here says."""
    controller = lab.controller()
    controller.want()
    controller = lab.controller()
    assert controller.record.job.bundle
    controller.up()
    observed = controller.record
    other = lab.controller(state="another computer")
    assert changed(other.record, serial=0, fence=0) == replace(observed, serial=0, fence=0)
    other.records.update(lambda record: changed(record, preemptions=7))
    old = lab.folder / "state" / "record.json"
    old.write_bytes(old.read_bytes().replace(b'"serial": ', b'"serial": 99'))
    assert lab.controller().record.node.preemptions == 7


@pytest.mark.parametrize("data", [b"", b"{", b"null", b'{"schema": 1, "history": 5}', b"\xff", b"[" * 9000])
@pytest.mark.parametrize("where", ["disk", "bucket", "both"])
def test_a_damaged_record_is_rebuilt_and_nothing_is_made_twice(lab, data, where):
    """The other copy, or journal and labels, show what exists; the damaged copy is retained for inspection."""
    lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    before = lab.up().record
    calls = lab.mutations()
    if where != "bucket":
        (lab.folder / "state" / "record.json").write_bytes(data)
    if where != "disk":
        lab.put(".tpuctl/record.json", data)
    controller = lab.controller()
    assert bool(controller.records.damaged) == (where != "disk")
    controller.up()
    made = {m: n for m, n in lab.mutations().items() if not m.startswith("storage")}
    assert made == {m: n for m, n in calls.items() if not m.startswith("storage")}
    after = controller.record
    assert (after.node.incarnation, after.node.zone, after.zones_used) == (
        2,
        before.node.zone,
        before.zones_used,
    )
    assert after.started_at == pytest.approx(before.started_at, abs=60)
    retained = lab.objects(".tpuctl/record.json.damaged")
    assert [lab.get(name) for name in retained] == ([data] if where != "disk" and data else [])


def test_a_lost_record_never_gives_a_name_twice(lab):
    """The node that followed another one was deleted meanwhile: its number is known from the journal."""
    lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.up()
    controller = lab.controller()
    controller.cloud.nodes.delete("demo-tpu-g2", ZONE)
    lab.put(".tpuctl/record.json", b"torn")
    (lab.folder / "state" / "record.json").unlink()
    lab.up()
    assert list(lab.nodes()) == ["demo-tpu-g3"]


def test_a_down_that_could_not_read_the_record_forgets_nothing_of_it(lab, monkeypatch):
    """One failed read, then the deletion of all by label: the next `up` goes on with the next number."""
    lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.up()
    with monkeypatch.context() as silent:
        silent.setattr(GcsStore, "read", _no_answer)
        down = lab.controller(state="another computer", forgiving=True)
    assert down.record.node.incarnation == 0
    deletion = down.deletion()
    deletion.begin()
    assert deletion.machines() == ()
    assert deletion.close() is None
    lab.controller(state="another computer").up()
    assert list(lab.nodes()) == ["demo-tpu-g3"]


def test_a_down_that_can_never_read_the_record_says_so_and_writes_none(lab, monkeypatch):
    """What is written without it would count as newer, and hide from the next `up` what has been."""
    lab.up()
    monkeypatch.setattr(GcsStore, "read", _no_answer)
    down = lab.controller(state="another computer", forgiving=True)
    deletion = down.deletion()
    deletion.begin()
    assert deletion.machines() == ()
    assert deletion.close().kind == "record"
    assert not (lab.folder / "another computer" / "record.json").exists()


def _no_answer(store, name, **part):
    if name == RECORD:
        raise TransientError("the bucket does not answer")
    return READ(store, name, **part)


def test_a_record_of_a_newer_version_is_refused(lab):
    """An old tpuctl does not act on what it cannot understand."""
    lab.up()
    body = json.loads(lab.get(".tpuctl/record.json"))
    body["schema"] = 2
    lab.put(".tpuctl/record.json", json.dumps(with_checksum(body)).encode())
    with pytest.raises(TpuctlError, match="schema 2"):
        lab.controller()


def test_one_bucket_serves_one_deployment(lab):
    """The record of another deployment is not taken for ours."""
    lab.up()
    with pytest.raises(ConflictError, match="demo"):
        lab.controller(one_zone_spec(name="other", bucket__name=lab.bucket), state="other")


def test_every_mutating_call_has_its_intent_before_and_its_result_after(lab):
    """When the wire sees a call, the journal on disk already names it; in the end each intent has its result."""
    controller = lab.controller()
    path, observed = lab.folder / "state" / "journal.jsonl", []

    def entries(part):
        lines = path.read_text().splitlines() if path.exists() else []
        return [e for e in map(json.loads, lines) if e["part"] == part]

    def look(what):
        found = [
            k for k in ("/nodes", "/instances", "/b") if what.partition("?")[0].split(" ")[1].endswith(k)
        ]
        kind = {"/nodes": "node", "/instances": "vm", "/b": "bucket"}.get(found[0]) if found else None
        if what.startswith("DELETE"):
            kind = "node" if "/nodes/" in what else "vm"
        if kind:
            observed.append(what)
            done = {e["id"] for e in entries("result")}
            assert any(e["kind"] == kind and e["id"] not in done for e in entries("intent")), what

    lab.wire.before = look
    controller.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    controller.deletion().machines()
    assert len(observed) >= 7
    intents, results = entries("intent"), entries("result")
    assert sorted(e["id"] for e in intents) == sorted(e["id"] for e in results)
    assert {e["outcome"] for e in results} == {"ok"}
    assert len(lab.objects(".tpuctl/journal/")) >= 6


def test_a_refused_call_leaves_its_reason_in_the_journal(lab):
    """The result names code and message."""
    lab.change(denied_permissions=frozenset({"tpu.nodes.create"}))
    with pytest.raises(TpuctlError):
        lab.up()
    text = (lab.folder / "state" / "journal.jsonl").read_text()
    assert "TPU-2" in text


def test_no_intent_means_no_call(lab, monkeypatch):
    """A journal that cannot be written stops the change before the call."""
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    before = lab.mutations()

    def refuse(*_, **__):
        raise TransientError("the disk is full")

    monkeypatch.setattr(controller.journal, "intend", refuse)
    result = controller.one_pass()
    assert len(result.failures) == 2
    assert lab.mutations() == before


def test_ids_of_intents_do_not_collide(lab):
    """Entries of the same moment and of a restarted controller have different ids."""
    change = Change(Kind.NODE, Verb.DELETE, "n", "why")
    ids = {lab.controller().journal.intend(change, in_bucket=False) for _ in range(3)}
    journal = lab.controller().journal
    ids |= {journal.intend(change, in_bucket=False) for _ in range(3)}
    assert len(ids) == 6


def test_a_write_that_fails_undoes_its_own_change_and_none_that_was_recorded(lab, monkeypatch):
    """What a call has brought about waits for the next write; an intent that is not saved is not held."""
    records = lab.up().records
    records.update_later(lambda record: changed(record, preemptions=3))

    def refuse(*_, **__):
        raise TransientError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(records._store, "write", refuse)
        with pytest.raises(TransientError):
            records.update(lambda record: changed(record, message="never"))
    assert (records.current.node.preemptions, records.current.message) == (3, "")
    records.flush()
    assert records.load().node.preemptions == 3
