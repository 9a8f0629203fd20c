"""Cases about buckets and objects: whose, closed, generations, offsets, lists, uploads, deletion."""

import hashlib
import tempfile
from pathlib import Path

from orchestrator.domain.observation import Absent, Present
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.conformance.ports_kit import BUCKET, case, each
from tests.google.adapter_lab import LABEL, a_bucket

OTHERS_BUCKET = {
    "another project": ("evil-project", {LABEL: "demo"}),
    "no label": ("local-project", {}),
    "another deployment": ("local-project", {LABEL: "else"}),
}
NAMES = ["plain", "a/b c#é.json", "with?query=1&x=%2F", "dots/./..x", "日本語/한국어", "a" * 1024]
BAD_NAMES = ["line\nbreak", "b" * 1025]
SIZES = {"empty": 0, "one": 1, "small": 1000, "at the limit": 8 << 20, "in a session": (8 << 20) + 1}
FILES = {"bundle.tar.gz": b"code", "agent.pyz": b"agent", "note.txt": b"text", "noext": b"bytes"}


def _made(way):
    way.ok(way.buckets.create, a_bucket())
    return way.store


def _file(name: str, data: bytes) -> Path:
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(data)
    return path


@case()
def a_bucket_is_made_closed(way):
    """Observed before, after, and at its adoption; created twice it is the same."""
    assert way.ok(way.buckets.observe, BUCKET) == Absent()
    for _ in range(2):
        way.ok(way.buckets.create, a_bucket())
        bucket = way.ok(way.buckets.observe, BUCKET).value
        assert (bucket.uniform_access, bucket.public_access_prevented) == (True, True)
    assert way.ok(way.adopted.observe, BUCKET) == Present(bucket)


@each([*OTHERS_BUCKET])
def a_foreign_bucket_is_not_ours(way, value):
    """Neither to see nor to grant on."""
    project, labels = OTHERS_BUCKET[value]
    way.storage.buckets.create(project, {"name": BUCKET, "labels": labels, "location": "EU"})
    way.ok(way.buckets.observe, BUCKET)
    way.ok(way.adopted.observe, BUCKET)
    assert "bucket.name" in way.refused(way.buckets.create, a_bucket()).hint


@case()
def a_name_that_another_project_owns_is_refused(way):
    """Looking at it directly is not allowed."""
    way.refused(way.buckets.create, a_bucket(name="somebody-elses"))
    way.ok(way.adopted.observe, "somebody-elses")
    way.ok(way.buckets.observe, "somebody-elses")
    way.refused(way.store_of("somebody-elses").list, "")


@each(["europe-west4", "EU", "us-central1", "not a place"])
def a_bucket_lies_where_it_was_requested(way, value):
    """The location is shown in lower case; one that cannot be is refused."""
    way.tried(way.buckets.create, a_bucket(location=value))
    way.ok(way.buckets.observe, BUCKET)


@each(["x", "Upper", "has_google_inside", "goog-front", "a" * 64])
def a_bucket_name_follows_the_rules(way, value):
    """Or the file is wrong."""
    assert way.refused(way.buckets.create, a_bucket(name=value)).code == "TPU-120"


@case()
def other_peoples_grants_stay(way):
    """Conditional ones too; ours is added once."""
    _made(way)
    held = way.storage.buckets.policy(BUCKET)
    other = {"role": "roles/storage.objectAdmin", "members": ["user:a@b.c"], "condition": {"title": "t"}}
    way.storage.buckets.set_policy(BUCKET, {**held, "version": 3, "bindings": [other]})
    for writer in ("x@y.z", "x@y.z", "second@y.z"):
        way.ok(way.buckets.create, a_bucket(writer=writer))
        way.log.append(way.storage.buckets.policy(BUCKET))


@each([1, 4, 5])
def a_grant_that_loses_races_is_repeated(way, value):
    """Five times, then it is an error."""
    way.local.fail_next("storage.buckets.setIamPolicy", ["precondition"] * value)
    way.tried(way.buckets.create, a_bucket())
    way.log.append(way.storage.buckets.policy(BUCKET))


@each([0, 1, 100, 101, 1001])
def a_bucket_goes_with_its_objects(way, value):
    """By pages and batches; twice is fine."""
    _made(way)
    for number in range(value):
        way.storage.objects.insert(BUCKET, f"c/{number:04d} é", b"x", {}, Preconditions())
    way.ok(way.buckets.delete, BUCKET)
    assert way.ok(way.buckets.observe, BUCKET) == Absent()
    way.ok(way.buckets.delete, BUCKET)


@each([["no access"], ["object missing"], ["object missing", "no access"], ["no access", "object missing"]])
def a_refusal_inside_a_batch_is_not_overlooked(way, value):
    """What is gone meanwhile is fine, what may not be deleted is an error."""
    store = _made(way)
    for name in "abc":
        store.write(name, b"x")
    way.local.fail_next("storage.objects.delete", value)
    way.tried(way.buckets.delete, BUCKET)
    way.tried(way.buckets.delete, BUCKET)


@each([1, 2, 3])
def a_bucket_that_fills_up_again_is_emptied_again(way, value):
    """Three times, then the writer is named as the cause."""
    _made(way).write("a", b"x")
    way.local.fail_next("storage.buckets.delete", ["bucket not empty"] * value)
    way.tried(way.buckets.delete, BUCKET)
    way.ok(way.buckets.observe, BUCKET)


@each(NAMES)
def what_is_written_is_read(way, value):
    """Under any name that the service takes."""
    store = _made(way)
    generation = way.ok(store.write, value, b"hello")
    way.wait(1.2345678)
    found = way.ok(store.read, value)
    assert (found.name, found.data, found.generation) == (value, b"hello", generation)
    way.ok(store.list, "")
    way.ok(store.sha256, value)
    way.ok(store.delete, value)


@each(BAD_NAMES)
def a_name_that_cannot_be_is_refused(way, value):
    """Nothing is written."""
    way.refused(_made(way).write, value, b"x")


@each([0, 2, 5, 9])
def reading_goes_on_from_an_offset(way, value):
    """At the end there is nothing."""
    store = _made(way)
    way.ok(store.write, "log", b"hello")
    assert way.ok(store.read, "log", value).data == b"hello"[value:]


@case()
def an_empty_object_has_a_digest(way):
    """Nothing is downloaded for it."""
    store = _made(way)
    way.ok(store.write, "empty", b"")
    assert way.ok(store.read, "empty").data == b""
    assert way.ok(store.sha256, "empty") == hashlib.sha256().hexdigest()


@case()
def what_is_not_there_is_none(way):
    """Read, digest and deletion of nothing."""
    store = _made(way)
    assert way.ok(store.read, "x") is None
    assert way.ok(store.sha256, "x") is None
    assert way.ok(store.download, "x", _file("x", b"")) is None
    way.ok(store.delete, "x")
    assert way.ok(store.list, "") == []


@case()
def without_a_bucket_there_is_nothing(way):
    """A read finds none, a list and a write are refused."""
    store = way.store_of("no-such-bucket")
    way.ok(store.read, "x"), way.ok(store.sha256, "x"), way.ok(store.delete, "x")
    assert way.refused(store.list, "").code == way.refused(store.write, "x", b"").code == "TPU-404"
    way.refused(store.upload, "x", _file("x", b"x"))


@case()
def generations_decide_races(way):
    """Zero means must not exist; a stale one loses; deletion has them too."""
    store = _made(way)
    first = way.ok(store.write, "lease", b"one", 0)
    assert way.refused(store.write, "lease", b"two", 0).code == "TPU-412"
    second = way.ok(store.write, "lease", b"two", first)
    way.refused(store.write, "lease", b"three", first)
    way.refused(store.delete, "lease", first)
    way.ok(store.delete, "lease", second)
    way.refused(store.write, "lease", b"four", second)
    way.ok(store.delete, "lease", second)
    way.ok(store.write, "lease", b"five", 0)


@each([*SIZES])
def a_file_is_uploaded_once(way, value):
    """Small in one call, large in a session; the second upload finds the first."""
    store, data = _made(way), b"0123456789abcdef" * (SIZES[value] // 16 + 1)
    path = _file("bundle.tar.gz", data[: SIZES[value]])
    generation = way.ok(store.upload, "bundles/x", path)
    assert way.ok(store.upload, "bundles/x", path) == generation
    copy = _file("copy.tar.gz", b"")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert way.ok(store.sha256, "bundles/x") == digest
    assert way.ok(store.download, "bundles/x", copy) == digest
    assert copy.read_bytes() == path.read_bytes()
    assert way.ok(store.list, "bundles/")[0].size == SIZES[value]


@each([*FILES])
def a_file_keeps_its_type(way, value):
    """The content type is guessed from its name."""
    store = _made(way)
    way.ok(store.upload, "x", _file(value, FILES[value]))
    assert way.refused(store.upload, "x", _file(value, b"other bytes")).code == "TPU-412"


@each([["no access"], ["latency:0", "rate of one object"], ["drop-answer"], ["latency:0", "drop-answer"]])
def a_large_upload_that_fails_is_not_half_an_object(way, value):
    """Whether the session or its data fails; the next upload copes."""
    store, path = _made(way), _file("b", bytes((8 << 20) + 5))
    way.local.fail_next("storage.objects.insert", value)
    way.refused(store.upload, "x", path)
    way.ok(store.list, "")
    way.ok(store.upload, "x", path)


@each([1000, 1001])
def all_pages_of_a_list_are_read(way, value):
    """In the order of their names, without data."""
    store = _made(way)
    for number in range(value):
        way.storage.objects.insert(BUCKET, f"j/{number:05d}", b"xy", {}, Preconditions())
    assert len(way.ok(store.list, "j/")) == value


@each(["", "a", "a/", "a/b", "z"])
def a_list_takes_a_prefix(way, value):
    """As text: folders are none."""
    store = _made(way)
    for name in ("a", "a/b", "a/b/c", "ab", "b"):
        store.write(name, b"")
    assert all(o.name.startswith(value) for o in way.ok(store.list, value))


@each([["latency:0", "object missing"], ["latency:0", "object missing"] * 5])
def an_object_replaced_while_it_is_read_is_read_again(way, value):
    """The generation that was looked at is gone; five times, then it is an error."""
    store = _made(way)
    store.write("a", b"x")
    way.local.fail_next("storage.objects.get", value)
    way.tried(store.read, "a", 1)
    way.tried(store.sha256, "a")


REFUSED = ["no access", "precondition", "rate of one object"]


@each([*REFUSED, *(["latency:0", one] for one in REFUSED)])
def a_refused_download_is_an_error(way, value):
    """Whether it is the only request, or the look before it has shown the object."""
    store, first = _made(way), isinstance(value, str)
    store.write("a", b"xyz")
    way.local.fail_next("storage.objects.get", [value] if first else value)
    way.refused(store.read, "a", 0 if first else 1)


@case()
def a_whole_object_is_one_request(way):
    """So is finding out that there is none; from an offset on it is two."""
    store = _made(way)
    store.write("a", b"xyz")
    way.wait(0.75)
    for name, offset, requests in (("a", 0, 1), ("b", 0, 1), ("a", 1, 2), ("b", 1, 1)):
        before = way.local.calls["storage.objects.get"]
        way.ok(store.read, name, offset)
        assert way.local.calls["storage.objects.get"] - before == requests


@case()
def a_store_with_a_prefix_sees_and_writes_only_what_lies_below_it(way):
    """Names go in and come back without it; what is emptied are its folders, without the excluded objects."""
    whole = _made(way)
    own = way.store_of(BUCKET, "runs/a/")
    whole.write("runs/ab", b"other")
    generation = way.ok(own.write, "x/one", b"1", 0)
    assert way.refused(own.write, "x/one", b"2", 0).code == whole_code(way, whole)
    way.ok(own.upload, "two", _file("two", b"22"))
    assert way.ok(own.read, "x/one").name == "x/one"
    assert way.ok(own.read, "x/one", 1).data == b""
    assert [one.name for one in way.ok(own.list, "")] == ["two", "x/one"]
    assert list(way.ok(own.checksums, "x/")) == ["x/one"]
    assert way.ok(own.sha256, "two") == hashlib.sha256(b"22").hexdigest()
    assert "gs://demo-bucket/runs/a/x/one" in way.refused(own.delete, "x/one", generation + 1).message
    assert [one.name for one in way.ok(whole.list, "")] == ["runs/a/two", "runs/a/x/one", "runs/ab"]
    way.ok(way.buckets.empty, BUCKET, "runs/a/", {"runs/a/two"})
    assert [one.name for one in way.ok(whole.list, "")] == ["runs/a/two", "runs/ab"]
    way.ok(way.buckets.empty, "no-such-bucket", "runs/a/")


def whole_code(way, store):
    """Return the code by which a store without a prefix refuses to write what exists."""
    return way.refused(store.write, "runs/ab", b"", 0).code
