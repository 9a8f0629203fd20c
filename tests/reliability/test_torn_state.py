"""
Torn state: whatever byte of what tpuctl stores is cut off or changed, it is detected or does no harm.

Every offset of every file is loaded as the next command would; a sample of them is followed by a whole `up`.
.ci/reliability flips all 8 bits of each byte and follows more (TPUCTL_TORN_BITS, TPUCTL_TORN_WATCHES).
"""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.app.deployment import expired
from orchestrator.app.this_computer.holder import process_ended, this_process
from orchestrator.config.adapter import dump, restore
from orchestrator.contract.bucket.object_names import JOURNAL, LEASE, RECORD
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.lease import EXPIRES_AFTER, Holder
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record
from orchestrator.engine.lease.lease_object import Lease
from orchestrator.engine.records import atomic_files
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.rebuild_record import _entry, rebuilt
from orchestrator.engine.records.record_format import encode, stored_values
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import LeaseHeldError
from orchestrator.google.objects import GcsStore
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.figures import record_figures
from tests.kit.records import record_of
from tests.kit.wire import clients
from tests.reliability.damage import cuts, damages, depth, flips

BITS = depth("TPUCTL_TORN_BITS", 1)
WATCHES = depth("TPUCTL_TORN_WATCHES", 1)
FIGURES: dict[str, object] = {}


@pytest.fixture(scope="module", autouse=True)
def figures():
    """Print what the tests of this module have counted."""
    yield
    record_figures(
        "torn",
        "Torn state (R11)",
        f"Every cut and {BITS} flipped bit(s) of every byte of what tpuctl stores, loaded as the next "
        "command does; a sample is followed by a whole `up`, which may neither make nor delete a machine.",
        dict(sorted(FIGURES.items())),
    )


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Return a deployment in its second incarnation, with what it has stored here and in the bucket."""
    lab = EngineLab(tmp_path_factory.mktemp("torn"))
    lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.controller().up()
    return lab


def store_of(lab, bucket=None):
    """Return the store of the lab's bucket, or of another one that need not exist."""
    lab.answers()
    return GcsStore(clients(), bucket or lab.bucket)


def count(name, data, outcomes):
    """Keep the figures of one file; what is not counted here was not looked at."""
    offsets = (1 + BITS) * len(data)
    assert sum(outcomes.values()) == offsets > 100
    FIGURES[name] = f"{offsets} damages of {len(data)} bytes: " + ", ".join(
        f"{number} {outcome}" for outcome, number in sorted(outcomes.items())
    )


def test_a_record_on_this_computer_is_whole_or_found_to_be_damaged(state, tmp_path):
    """Before the bucket exists this copy is all there is: a damaged one counts as none, and nothing is made yet."""
    path, outcomes = tmp_path / "record.json", Counter()
    records = RecordStore(path, store_of(state, "no-such-bucket"), "demo")
    before = record_of(started_at=1_800_000_000.5, bundle="b" * 64, agent="a" * 64, job="j" * 64)
    data = encode(before, "demo", "w" * 32)
    for damaged in damages(data, BITS):
        path.write_bytes(damaged)
        observed = records.load()
        assert observed == (Record() if records.damaged else before), damaged
        outcomes["detected" if records.damaged else "harmless"] += 1
    count("record here", data, outcomes)
    path.write_bytes(data)
    assert (records.load(), records.damaged) == (before, "")


def test_a_record_in_the_bucket_is_whole_or_replaced_by_the_one_here(state, tmp_path):
    """Its generation is remembered, so that the next write replaces exactly what was read."""
    data, outcomes = state.get(RECORD), Counter()
    path, store = tmp_path / "record.json", store_of(state)
    path.write_bytes(data)
    whole = RecordStore(path, store, "demo").load()
    records = RecordStore(path, store, "demo")
    for damaged in damages(data, BITS):
        state.put(RECORD, damaged)
        assert records.load() == whole
        outcomes["detected" if records.damaged else "harmless"] += 1
    state.put(RECORD, data)
    count("record in the bucket", data, outcomes)
    assert outcomes["detected"] > 0.99 * len(data)


def test_an_entry_of_the_journal_is_whole_or_skipped(state):
    """A record is rebuilt from these entries: a changed zone or number in one would be believed."""
    outcomes, sizes = Counter(), b""
    for name in (name for name in state.objects(JOURNAL) if name.endswith(".intent.json")):
        data = state.get(name)
        whole = _entry(store_of(state), name)
        for damaged in damages(data, BITS):
            state.put(name, damaged)
            observed = _entry(store_of(state), name)
            assert observed is None or {k: observed.get(k) for k in whole} == whole, damaged
            outcomes["detected" if observed is None else "harmless"] += 1
        state.put(name, data)
        sizes += data
    count("journal in the bucket", sizes, outcomes)


def test_a_damaged_journal_here_takes_no_other_entry_with_it(state, tmp_path, monkeypatch):
    """Nobody acts by this file; who reads it after a kill finds every line but the damaged one, and later ones."""
    monkeypatch.setattr(atomic_files.os, "fsync", lambda _: None)
    data = (state.folder / "state" / "journal.jsonl").read_bytes()
    if BITS == 1:
        data = b"".join(data.splitlines(keepends=True)[-3:])
    lines = set(data.splitlines())
    path, outcomes = tmp_path / "journal.jsonl", Counter()
    journal = Journal(path, store_of(state), state.clock)
    change = Change(Kind.NODE, Verb.CREATE, "n", "why")
    for number, damaged in enumerate([*cuts(data), *flips(data, BITS)]):
        path.write_bytes(damaged)
        entry = journal.intend(change, in_bucket=False)
        observed = path.read_bytes().splitlines()
        assert json.loads(observed[-1])["id"] == entry
        whole = data[:number].count(b"\n") if number < len(data) else len(lines) - 2
        assert len(lines.intersection(observed)) >= whole
        outcomes["harmless"] += 1
    count("journal here", data, outcomes)


def test_no_damage_gives_the_lease_of_a_living_holder_away(state):
    """A changed process id must not look like a dead process, and a changed name not like our own."""
    clock, store = state.clock, store_of(state)
    data, outcomes = this_process("watch", clock.now(), yields=()).to_json(), Counter()
    mine = Lease(store, clock, Holder("mine", "there", "up", clock.now()), process_ended)
    for damaged in damages(data, BITS):
        state.put(LEASE, damaged)
        with pytest.raises(LeaseHeldError) as refused:
            mine.acquire()
        outcomes["detected" if "cannot be read" in str(refused.value) else "harmless"] += 1
    count("lease", data, outcomes)
    state.put(LEASE, data[:-1])
    state.clock.advance(EXPIRES_AFTER + 1)
    mine.acquire()
    mine.release()


@pytest.mark.parametrize("over", [False, True])
def test_no_damage_ends_a_deployment_before_its_time(tmp_path, over):
    """
    What `up` wanted is stored beside the record, and by it an expired deployment is ended: only if it is whole.

    A damaged one is reported, since nothing here ends that deployment.
    """
    said = []
    spec = one_zone_spec(watch__ttl="1d")
    folder = tmp_path / "local-project" / "demo"
    folder.mkdir(parents=True)
    begun = 1_800_000_000.0
    now = begun + (2 if over else 0.5) * 86400
    (folder / "record.json").write_bytes(encode(record_of(started_at=begun, accepted=True), "demo"))
    retained, outcomes = folder / expired.SPEC_FILE, Counter()
    data = json.dumps(with_checksum(dump(spec)), indent=1, sort_keys=True).encode()
    retained.write_bytes(data)
    whole = list(expired._expired(tmp_path, now, said.append))
    assert whole == ([spec] if over else [])
    for damaged in damages(data, BITS) if over else flips(data, BITS):
        retained.write_bytes(damaged)
        said.clear()
        found = list(expired._expired(tmp_path, now, said.append))
        assert found in ([], whole), damaged
        assert found or said or not over
        outcomes["harmless" if found else "detected"] += 1
    if over:
        count("spec beside the record", data, outcomes)
    assert restore(dump(spec)) == spec


def watch_after(lab, where, damage):
    """Damage what *where* names, start the next command, and return what was damaged."""
    here = lab.folder / "state"
    for name in where:
        if name.startswith("."):
            lab.put(name, damage(lab.get(name) or b"{}"))
        else:
            (here / name).write_bytes(damage((here / name).read_bytes()))
    lab.clock.advance(EXPIRES_AFTER + 1)
    controller = lab.controller()
    controller.up()
    return controller


PLACES = {
    "record here": ["record.json"],
    "record in the bucket": [RECORD],
    "both records": ["record.json", RECORD],
    "journal here": ["journal.jsonl"],
    "lease": [LEASE],
    "all": ["record.json", RECORD, "journal.jsonl", LEASE],
}


@pytest.mark.parametrize("kind", ["cut", "flip"])
def test_the_next_command_goes_on_with_what_is_there(state, kind):
    """Not one machine is made or deleted, and the record says of everything that lives what it said before."""
    dice, before = random.Random(kind), state.up().record
    calls = {m: n for m, n in state.mutations().items() if not m.startswith("storage")}

    def cut(data):
        return data[: dice.randrange(len(data) or 1)]

    def flip(data):
        place = dice.randrange(len(data) or 1)
        return (
            data[:place]
            + bytes(byte ^ 1 << dice.randrange(8) for byte in data[place : place + 1])
            + data[place + 1 :]
        )

    followed = 0
    for where in PLACES.values():
        for _ in range(WATCHES):
            after = watch_after(state, where, cut if kind == "cut" else flip).record
            assert {m: n for m, n in state.mutations().items() if not m.startswith("storage")} == calls
            assert list(state.nodes()) == ["demo-tpu-g2"]
            assert list(state.vms()) == ["demo-vm"]
            for reported in (
                "incarnation",
                "zone",
                "zones_used",
                "accepted",
                "vm_accepted",
                "bucket_seen",
                "bundle",
            ):
                assert stored_values(after)[reported] == stored_values(before)[reported], (where, reported)
            followed += 1
    FIGURES[f"whole `up` after a {kind}"] = f"{followed} in {len(PLACES)} places, 0 machines made or deleted"


def test_what_is_rebuilt_is_what_was_there(state):
    """Journal and reports show the same of everything that exists as the record."""
    whole = state.up().record
    again = rebuilt(store_of(state))
    for reported in ("incarnation", "zone", "zones_used", "accepted", "vm_accepted", "bucket_seen"):
        assert stored_values(again)[reported] == stored_values(whole)[reported], reported
    assert again == replace(again, started_at=pytest.approx(whole.started_at, abs=60))
