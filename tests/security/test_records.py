"""A record that somebody else has put into the bucket is not believed, and no code comes or goes by its word."""

import json
from dataclasses import replace

import pytest

from orchestrator.domain.checksum import Origin, origin_of, proven, with_checksum
from orchestrator.domain.observation import Operation
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Span
from orchestrator.engine.delete import Deletion
from orchestrator.engine.reconcile.artifacts import bundle_file, find_artifacts
from orchestrator.engine.records import record_format
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import ConflictError, DamagedRecordError, LeaseHeldError, TpuctlError
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.engine.stand_ins import DIGEST
from tests.kit.records import changed, record_of
from tests.security.test_forgeries import EVIL

KEY, OTHER = b"k" * 32, b"o" * 32
RECORD = ".tpuctl/record.json"


@pytest.fixture
def lab(tmp_path):
    """Return a local cloud of its own."""
    return EngineLab(tmp_path)


@pytest.fixture
def known(lab):
    """Return a deployment that is up, whose record this computer has written under its key."""
    controller = lab.up()
    lab.wait(60)
    controller.one_pass()
    controller.lease.release()
    records = opened(lab)
    records.update(lambda record: changed(record, preemptions=3))
    return records


def opened(lab, key=KEY, folder="state", **options):
    """Return the record as a process of a computer finds it."""
    path, store = lab.folder / folder / "record.json", lab.open(one_zone_spec()).store
    records = RecordStore(path, store, "demo", key, lab.clock.now)
    records.load(**options)
    return records


def forge(lab, key=b"", **changes):
    """Put a record into the bucket whose checksum fits."""
    record = decode(lab.get(RECORD), "demo")
    lab.put(RECORD, encode(changed(record, **changes), "demo", "somebody", key))


def test_what_this_computer_wrote_is_believed(lab, known):
    """Again and again, and by each command."""
    assert opened(lab).doubt == opened(lab).damaged == ""
    assert opened(lab).current == known.current


@pytest.mark.parametrize("key", [b"", OTHER])
def test_a_record_under_another_key_or_none_is_asked_about(lab, known, key):
    """Nothing is written before somebody has said that it was he; then it is this computer's."""
    forge(lab, key, serial=10**14, started_at=5.0e9, spans=())
    records = opened(lab)
    assert "not by this computer" in records.doubt
    before = lab.get(RECORD)
    with pytest.raises(ConflictError, match="not by this computer"):
        records.update(lambda record: changed(record, preemptions=9))
    with pytest.raises(ConflictError):
        records.take(1)
    assert lab.get(RECORD) == before
    records.believe()
    records.update(lambda record: changed(record, preemptions=9))
    assert opened(lab).doubt == ""


def test_a_computer_that_never_saw_the_deployment_takes_the_record_as_it_is(lab, known):
    """It knows nothing better, and says so; one whose own copy is of before there were keys takes it too."""
    elsewhere = opened(lab, OTHER, "elsewhere")
    assert (elsewhere.doubt, elsewhere.unproven) == ("", True)
    assert not opened(lab, KEY, "new").unproven
    forge(lab, b"", serial=10**14)
    (lab.folder / "before").mkdir()
    (lab.folder / "before/record.json").write_bytes(lab.get(RECORD))
    forge(lab, b"", serial=10**14 + 1)
    records = opened(lab, KEY, "before")
    assert (records.doubt, records.current.serial) == ("", 10**14 + 1)


def test_an_old_record_that_is_put_back_does_not_count(lab, known):
    """Also one that this computer had written: its serial says that it is older than the copy here."""
    old = lab.get(RECORD)
    known.update(lambda record: changed(record, preemptions=4))
    lab.put(RECORD, old)
    records = opened(lab)
    assert records.current.node.preemptions == 4
    assert "older than that of the copy here" in records.damaged
    records.update(lambda record: changed(record, preemptions=5))
    assert opened(lab).current.node.preemptions == 5
    assert opened(lab).damaged == ""


def test_a_deployment_recreated_elsewhere_is_not_taken_for_an_old_record(lab, known):
    """Another computer took all down, the record too, and brings it up again: the copy here is old."""
    for number in range(5):
        known.update(lambda record, n=number: changed(record, preemptions=n + 1))
    lab.wait(60)
    lab.open(one_zone_spec()).store.delete(RECORD)
    other = opened(lab, KEY, "other")
    other.update(lambda record: changed(record, bucket_observed=True, preemptions=77))
    assert opened(lab).current.node.preemptions == 77
    assert opened(lab).damaged == ""


def test_down_needs_no_agreement(lab, known):
    """It goes on with the copy here, and looks where the other one says that something is, too."""
    forge(lab, OTHER, serial=10**14, zones_used=("us-central1-a",), spans=())
    records = opened(lab, forgiving=True)
    assert records.doubt == ""
    assert records.current.spans == known.current.spans
    assert "us-central1-a" in records.current.zones_used
    records.update(lambda record: changed(record, preemptions=9))


def test_a_proof_covers_every_byte():
    """Whatever is changed, the proof does not fit; without the key none can be made."""
    body = proven({"schema": 1, "history": {"spans": [1, 2]}}, KEY)
    assert origin_of(with_checksum(body), KEY) is Origin.OURS
    assert origin_of({**body, "history": {"spans": []}}, KEY) is Origin.FOREIGN
    assert origin_of({**body, "more": 1}, KEY) is Origin.FOREIGN
    assert origin_of(body, OTHER) is Origin.FOREIGN
    assert origin_of({"schema": 1}, KEY) is Origin.UNKEYED
    for value in EVIL:
        assert origin_of({**body, "proof": value}, KEY) is not Origin.OURS
        assert origin_of({**body, "proof": {"mac": value}}, KEY) is not Origin.OURS


SPAN = Span(Kind.NODE, "demo-tpu-g1", "europe-west4-b", 1.0e9)
OPERATION = Operation("operations/x", Kind.NODE, Verb.CREATE, "demo-tpu-g1", "europe-west4-b", 1, 1.0e9)


@pytest.mark.parametrize(
    "changes",
    [
        {"spans": (replace(SPAN, kind="x"),)}, {"zones_used": ("a/b",)}, {"zone": "../x"},
        {"bundle": "victim/backup"},
        {"bundle": "/home/me/backup"}, {"agent": "x"}, {"uploaded": "a:b"}, {"pushed": "x"},
        {"started_at": 1e20}, {"reason": "\ud800"},
        {"incarnation": -1}, {"highest": 10**12}, {"type": "a/b"}, {"type": "$(id)"},
        {"on_demand": (-3,)},
        {"spans": (replace(SPAN, since=float("inf")),)}, {"spans": (replace(SPAN, zone="a b"),)},
        {"spans": (replace(SPAN, name="X/Y"),)}, {"operations": (replace(OPERATION, id="../../secrets"),)},
        {"operations": (replace(OPERATION, verb="x"),)}, {"operations": (replace(OPERATION, kind="x"),)},
        {"reason": "x" * 100_000}, {"sightings": {"vm:absent": float("nan")}},
    ],
)  # fmt: skip
def test_a_record_holds_what_tpuctl_writes_or_is_damaged(monkeypatch, changes):
    """Then the copy here counts; `down` finds by label what there is, and ends with nothing left."""
    monkeypatch.setattr(record_format, "_readable", lambda record: record)  # A forger writes what he likes.
    data = encode(changed(record_of(bucket_observed=True), **changes), "demo")
    with pytest.raises(DamagedRecordError):
        decode(data, "demo")
    whole = record_of(spans=(SPAN,), operations=(OPERATION,), zones_used=("europe-west4-b",), fence=1 << 60)
    assert decode(encode(whole, "demo"), "demo") == whole


@pytest.mark.parametrize("changes", [{"deployment": "x"}, {"schema": 9}, {"deployment": 5}, {"history": []}])
def test_down_deletes_whatever_the_record_says(lab, changes):
    """Another deployment's, a newer version's, no record at all: the machines are found by their label."""
    lab.up()
    body = json.loads(lab.get(RECORD))
    body = {name: value for name, value in body.items() if name != "checksum"}
    lab.put(RECORD, json.dumps(with_checksum({**body, **changes})).encode())
    (lab.folder / "fresh").mkdir()
    controller = lab.controller(state="fresh", forgiving=True)
    deletion = Deletion(controller.deployment)
    deletion.begin()
    assert deletion.machines() == ()
    assert lab.nodes() == lab.vms() == {}


def test_down_goes_on_without_the_lease_when_the_user_says_so(lab):
    """Somebody rewrites lease and record again and again: the machines go all the same."""
    controller = lab.up()
    write = controller.cloud.store.write

    def racing(name, data, if_generation=None):
        if name == RECORD:
            lab.put(RECORD, encode(changed(controller.record, preemptions=7), "demo", "somebody"))
        return write(name, data, if_generation)

    controller.lease.release()
    controller.cloud.store.write = racing
    with pytest.raises(LeaseHeldError):
        Deletion(controller.deployment).begin()
    deletion = Deletion(controller.deployment, under_lease=False)
    deletion.begin()
    assert deletion.machines() == ()
    assert lab.nodes() == lab.vms() == {}
    assert deletion.close().kind == "record"


def test_a_file_that_is_not_what_its_name_says_is_not_sent(lab):
    """Neither by a digest that is a path, nor by a file of another content, nor by a link."""
    controller = lab.up()
    store, bundles = controller.cloud.store, lab.folder / "bundles"
    secret = lab.folder / "backup.tar.gz"
    secret.write_bytes(b"TOP-SECRET")
    for name in ("../backup", str(secret).removesuffix(".tar.gz"), "x", "", "A" * 64):
        with pytest.raises(TpuctlError, match="not a sha256"):
            find_artifacts(changed(controller.record, bundle=name), bundles, store)
    place = bundle_file(bundles, DIGEST["bundle"])
    whole = place.read_bytes()
    place.write_bytes(b"TOP-SECRET")
    assert find_artifacts(controller.record, bundles, store).bundle.read_bytes() == whole
    place.unlink()
    place.symlink_to(secret)
    assert find_artifacts(controller.record, bundles, store).bundle.read_bytes() == whole
    assert not place.is_symlink()
    assert secret.read_bytes() == b"TOP-SECRET"


def test_what_is_paid_for_comes_out_of_the_file(lab):
    """A record asks neither for another type nor for one on demand, where the file does not."""
    controller = lab.up()
    forged = changed(controller.record, type="v5litepod-256", on_demand=(2, 3))
    new = controller.blueprint.new_node(forged, "europe-west4-b", 2)
    assert (new.type, new.spot) == (one_zone_spec().tpu.type, True)
    other = lab.controller(one_zone_spec(tpu__other_types=["v5litepod-16"]), state="other")
    allowed = changed(controller.record, type="v5litepod-16")
    assert other.blueprint.new_node(allowed, "europe-west4-b", 2).type == "v5litepod-16"
