"""Objects: generations, preconditions, offsets, lists; nothing is lost and nothing is invented."""

import gzip

import pytest

from orchestrator.engine.lease.lease_object import TOO_SOON
from orchestrator.errors import AuthError, NotFoundError, PreconditionError, TransientError, UnknownCloudError
from orchestrator.google.objects import GcsStore
from tests.google.adapter_lab import a_bucket, a_lab, canned


@pytest.fixture
def lab():
    """Return a lab that has the bucket."""
    made = a_lab()
    made.buckets.create(a_bucket())
    return made


def test_what_is_written_is_read(lab):
    """Data, size, generation and the bucket's time come back."""
    generation = lab.store().write("a/b c#é.json", b"hello")
    found = lab.store().read("a/b c#é.json")
    assert (found.name, found.data, found.size, found.generation) == ("a/b c#é.json", b"hello", 5, generation)
    assert found.updated == pytest.approx(lab.clock.now(), abs=1)


def test_what_is_not_there_is_none(lab):
    """An absent object is None, not an error."""
    assert lab.store().read("nothing") is None


def test_an_absent_bucket_has_no_objects_to_read(lab):
    """Without the bucket there is no object either; a list of it is an error all the same."""
    assert lab.store("no-such-bucket").read("a") is None
    with pytest.raises(NotFoundError):
        lab.store("no-such-bucket").list("")


@pytest.mark.parametrize(("offset", "data"), [(0, b"hello"), (2, b"llo"), (5, b""), (9, b"")])
def test_reading_goes_on_from_an_offset(lab, offset, data):
    """The answer holds the whole size; reading at the end gives nothing."""
    lab.store().write("log", b"hello")
    found = lab.store().read("log", offset)
    assert (found.data, found.size) == (data, 5)


def test_an_empty_object_is_read(lab):
    """No bytes are an answer."""
    lab.store().write("empty", b"")
    assert lab.store().read("empty").data == b""


def test_generation_zero_means_must_not_exist(lab):
    """Of two creators one wins."""
    lab.store().write("lease", b"one", if_generation=0)
    with pytest.raises(PreconditionError):
        lab.store().write("lease", b"two", if_generation=0)
    assert lab.store().read("lease").data == b"one"


def test_a_stale_generation_is_refused(lab):
    """Compare and swap: the second writer with the same generation loses."""
    first = lab.store().write("lease", b"one")
    second = lab.store().write("lease", b"two", if_generation=first)
    assert second != first
    with pytest.raises(PreconditionError):
        lab.store().write("lease", b"three", if_generation=first)
    assert lab.store().read("lease").generation == second


def test_a_lost_answer_to_a_write_is_not_repeated(lab):
    """The error says that the outcome is unknown; the object shows it."""
    lab.local.fail_next("storage.objects.insert", ["drop-answer"])
    with pytest.raises(TransientError) as caught:
        lab.store().write("lease", b"one", if_generation=0)
    assert "not known" in caught.value.changed
    assert lab.local.calls["storage.objects.insert"] == 1
    assert lab.store().read("lease").data == b"one"


@pytest.mark.parametrize("size", [0, 1000, 9 << 20])
def test_a_file_is_uploaded_once(lab, tmp_path, size):
    """Small and large files arrive whole; a second upload finds the first."""
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(bytes(range(256)) * (size // 256))
    generation = lab.store().upload("bundles/x.tar.gz", path)
    assert lab.store().upload("bundles/x.tar.gz", path) == generation
    assert lab.store().read("bundles/x.tar.gz", limit=10 << 20).data == path.read_bytes()


def test_an_upload_over_other_content_is_refused(lab, tmp_path):
    """A name that holds other bytes is never taken for the file."""
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(b"new")
    lab.store().write("bundles/x.tar.gz", b"old")
    with pytest.raises(PreconditionError):
        lab.store().upload("bundles/x.tar.gz", path)
    assert lab.store().read("bundles/x.tar.gz").data == b"old"


def test_all_pages_of_a_list_are_read(lab):
    """More objects than a page holds are all listed, without data."""
    for number in range(1003):
        lab.store().write(f"journal/{number:05d}", b"xy")
    lab.store().write("other", b"")
    found = lab.store().list("journal/")
    assert len(found) == 1003
    assert {(o.size, o.data) for o in found} == {(2, b"")}
    assert found[0].generation > 0


def test_a_list_is_followed_to_its_limit_only(lab):
    """Machines may write any number of objects; no further page is asked for."""
    for number in range(9):
        lab.store().write(f"journal/{number}", b"")
    assert len(lab.store().list("journal/", 9)) == 9
    with pytest.raises(UnknownCloudError, match="more than 4 objects"):
        lab.store().list("journal/", 4)


def test_what_is_packed_is_not_unpacked(lab, tmp_path):
    """A few kilobytes may unpack to gigabytes: they come as they are stored, also into a file."""
    packed = gzip.compress(b"0" * 100_000)
    blob = lab.clients.storage.bucket(lab.store()._name).blob("packed")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed)
    store = lab.store()
    assert store.read("packed").data == packed
    assert store.read("packed", 5).data == packed[5:]
    assert store.sha256("packed") == store.download("packed", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == packed


def test_a_download_tells_its_size_before_any_byte_comes(lab, tmp_path):
    """The callback that gets the size may refuse: the file stays empty."""
    store, reported = lab.store(), []
    store.write("large", b"x" * 5000)
    assert store.download("large", tmp_path / "file", reported.append) == store.sha256("large")
    assert reported == [5000]

    def refuse(size):
        raise RuntimeError(size)

    with pytest.raises(RuntimeError, match="5000"):
        store.download("large", tmp_path / "other", refuse)
    assert (tmp_path / "other").read_bytes() == b""


def test_delete_is_idempotent(lab):
    """An object that is gone is fine."""
    lab.store().write("a", b"x")
    lab.store().delete("a")
    lab.store().delete("a")
    assert lab.store().list("") == []


def test_an_object_replaced_while_it_is_read_is_read_again(lab, monkeypatch):
    """Data and generation belong together, also when somebody writes between the two requests."""
    store = lab.store()
    store.write("lease", b"one")
    read, written = store._blob_if_any, []

    def look_then_write(name):
        blob = read(name)
        if not written:
            written.append(lab.store().write("lease", b"two"))
        return blob

    monkeypatch.setattr(store, "_blob_if_any", look_then_write)
    found = store.read("lease", 1)
    assert (found.data, found.generation) == (b"wo", written[0])


def test_an_object_that_never_stands_still_is_an_error(lab, monkeypatch):
    """The reader gives up, and says so, instead of reading for ever."""
    store = lab.store()
    store.write("lease", b"xx")
    read = store._blob_if_any

    def look_then_write(name):
        blob = read(name)
        lab.store().write("lease", b"yy")
        return blob

    monkeypatch.setattr(store, "_blob_if_any", look_then_write)
    with pytest.raises(TransientError):
        store.read("lease", 1)


def test_a_denied_read_is_not_an_absence(lab):
    """403 is an error of its own."""
    lab.store().write("a", b"x")
    lab.local.fail_next("storage.objects.get", ["no access"])
    with pytest.raises(AuthError):
        lab.store().read("a")


def test_a_404_of_a_proxy_is_not_an_absence():
    """Only the service's own form of 404 proves that an object is not there."""
    from orchestrator.google.objects import GcsStore

    with canned(lambda _: (404, b"<html>nothing</html>")) as server, pytest.raises(UnknownCloudError):
        GcsStore(server.clients(), "demo-bucket").read("a")


@pytest.mark.parametrize("there", [True, False])
def test_a_download_that_is_refused_in_plain_text_is_looked_into(there):
    """A 404 without Google's form proves nothing; that of the metadata does, or the object is there."""
    from orchestrator.google.objects import GcsStore

    asked = []

    def answer(observed):
        asked.append(observed.path)
        if "alt=media" not in observed.path:
            gone = {"error": {"code": 404, "message": "No such object"}}
            return (200, META) if there else (404, gone)
        return (200, b"hello") if "generation=1" in observed.path else (404, b"No such object: demo-bucket/a")

    with canned(answer) as server:
        found = GcsStore(server.clients(), "demo-bucket").read("a")
    assert (found and found.data) == (b"hello" if there else None)
    assert len(asked) == (3 if there else 2)


def test_a_service_that_does_not_say_what_it_sent_is_asked_twice():
    """Without generation and time in a download's headers both come from the metadata, from then on at once."""
    from orchestrator.google.objects import GcsStore

    asked = []

    def answer(observed):
        asked.append(observed.path)
        return (200, b"hello") if "alt=media" in observed.path else (200, META)

    with canned(answer) as server:
        store = GcsStore(server.clients(), "demo-bucket")
        first, second = store.read("a"), store.read("a")
    assert first == second
    assert (first.data, first.generation, first.size) == (b"hello", 1, 5)
    assert len(asked) == 3 + 2


META = {"name": "a", "size": "5", "generation": "1", "updated": "2026-11-21T10:00:00Z"}


def test_a_damaged_download_is_refused():
    """Data whose checksum differs never reaches the caller."""
    from orchestrator.google.objects import GcsStore

    def answer(observed):
        wrong = {"x-goog-hash": "crc32c=AAAAAA=="}
        return (200, b"hello", wrong) if "alt=media" in observed.path else (200, META)

    with canned(answer) as server, pytest.raises(TransientError) as caught:
        GcsStore(server.clients(), "demo-bucket").read("a")
    assert caught.value.code == "TPU-403"


def test_a_write_that_comes_too_soon_is_asked_for_again_with_its_precondition():
    """Cloud Storage takes about one change of an object a second; the refused one was not carried out."""
    asked = []

    def answer(observed):
        asked.append(observed.path)
        if len(asked) < 3:
            return 429, {
                "error": {"code": 429, "message": "rate limit", "errors": [{"reason": "rateLimitExceeded"}]}
            }
        return 200, {"name": "x", "generation": "7", "bucket": "demo-bucket"}

    with canned(answer) as server:
        assert GcsStore(server.clients(read_retry=1), "demo-bucket").write("x", b"data", 6) == 7
    assert len(asked) == 3
    assert all("ifGenerationMatch=6" in path for path in asked)


def test_a_deletion_that_comes_too_soon_is_refused_at_once_where_the_caller_does_not_wait():
    """The code says that the object's rate is the reason: whoever gives a lease back writes beside it then."""
    asked = []

    def answer(observed):
        asked.append(observed.path)
        reason = {"reason": "rateLimitExceeded"}
        return 429, {"error": {"code": 429, "message": "rate limit", "errors": [reason]}}

    with canned(answer) as server, pytest.raises(TransientError) as caught:
        GcsStore(server.clients(read_retry=1), "demo-bucket").delete("x", 6, patient=False)
    assert len(asked) == 1
    assert caught.value.code == TOO_SOON
