"""Objects: generations, preconditions, checksums, compose, copy, resumable uploads."""

import base64
import hashlib
import os

import google_crc32c
import pytest

from orchestrator.emulator.state.storage.blobs import MemoryBlobs
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.emulator.storage_kit import ANY, MUST_NOT_EXIST, a_storage, put, source


def refused(call, *args, **kwargs):
    """Return the status of a refusal."""
    with pytest.raises(StorageError) as error:
        call(*args, **kwargs)
    return error.value.status


def crc(data):
    """Return the crc32c as the API shows it."""
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def test_checksums_are_those_of_the_data():
    """A wrong crc32c would make the client delete the object."""
    data = os.urandom(3_000_000)
    made = put(a_storage(), "a", data)
    assert made.crc32c == crc(data)
    assert made.md5 == base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def test_each_write_is_a_new_generation_even_at_the_same_instant():
    """The clock stands still here."""
    storage = a_storage()
    generations = [put(storage, "a").generation for _ in range(3)]
    assert generations == sorted(set(generations))


def test_generation_zero_means_must_not_exist():
    """The first of two creators wins: this is what a lock is built on."""
    storage = a_storage()
    storage.objects.insert("data", "lock", b"me", {}, MUST_NOT_EXIST)
    assert refused(storage.objects.insert, "data", "lock", b"you", {}, MUST_NOT_EXIST) == 412
    assert storage.objects.read(storage.objects.get("data", "lock")) == b"me"


@pytest.mark.parametrize("field", ["generation", "metageneration"])
def test_a_write_with_a_stale_number_changes_nothing(field):
    """Generation and metageneration guard inserts, patches and deletes alike."""
    storage = a_storage()
    held = put(storage, "a")
    stale = Preconditions(**{field: getattr(held, field) + 1})
    assert refused(storage.objects.insert, "data", "a", b"new", {}, stale) == 412
    assert refused(storage.objects.patch, "data", "a", {"metadata": {"k": "v"}}, stale) == 412
    assert refused(storage.objects.delete, "data", "a", None, stale) == 412
    assert storage.objects.get("data", "a") == held


def test_a_read_of_a_known_generation_is_304_and_a_write_412():
    """The condition ifGenerationNotMatch answers reads and writes differently."""
    known = Preconditions(generation_not=7)
    with pytest.raises(StorageError) as changed:
        known.check_read(7, 1)
    assert changed.value.status == 304
    assert refused(known.check_write, 7, 1) == 412
    known.check_read(8, 1)


def test_an_old_generation_is_gone():
    """There is no versioning: the number asked for must be the live one."""
    storage = a_storage()
    old = put(storage, "a").generation
    new = put(storage, "a").generation
    assert refused(storage.objects.get, "data", "a", old) == 404
    assert refused(storage.objects.delete, "data", "a", old, ANY) == 404
    assert storage.objects.get("data", "a", new).generation == new


def test_a_wrong_checksum_is_refused_and_nothing_is_stored():
    """The data did not arrive as it was sent."""
    backend = MemoryBlobs()
    storage = a_storage(backend)
    assert refused(put, storage, "a", b"data", crc32c=crc(b"other")) == 400
    assert refused(put, storage, "a", b"data", md5Hash="AAAA") == 400
    assert backend.blobs() == []
    assert storage.objects.is_empty("data")


def test_replaced_and_deleted_objects_leave_no_bytes():
    """The backend holds one blob for each live object."""
    backend = MemoryBlobs()
    storage = a_storage(backend)
    put(storage, "a", b"1")
    put(storage, "a", b"2")
    assert len(backend.blobs()) == 1
    storage.objects.delete("data", "a", None, ANY)
    assert backend.blobs() == []


def test_metadata_merges_and_keeps_the_generation():
    """A patch is a new metageneration of the same data."""
    storage = a_storage()
    first = put(storage, "a", metadata={"keep": "1", "drop": "2"}, contentType="text/plain")
    patched = storage.objects.patch("data", "a", {"metadata": {"drop": None}, "size": "9"}, ANY)
    assert patched.fields == {"metadata": {"keep": "1"}, "contentType": "text/plain"}
    assert (patched.generation, patched.metageneration) == (first.generation, 2)
    assert patched.size == 1


def test_compose_joins_in_order_and_has_no_md5():
    """Components count through compositions of compositions; their own checksums are ignored."""
    storage = a_storage()
    for name in "abc":
        put(storage, name, name.encode() * 2)
    pair = storage.objects.compose([source("a"), source("b")], "data", "ab", {"crc32c": "AAAA"}, ANY)
    every = storage.objects.compose([source("ab"), source("c")], "data", "abc", {}, ANY)
    assert storage.objects.read(every) == b"aabbcc"
    assert every.crc32c == crc(b"aabbcc")
    assert (pair.components, every.components, every.md5) == (2, 3, None)


@pytest.mark.parametrize("count", [0, 33])
def test_compose_takes_1_to_32_sources(count):
    """More or fewer are a 400."""
    storage = a_storage()
    put(storage, "a")
    assert refused(storage.objects.compose, [source("a")] * count, "data", "b", {}, ANY) == 400


def test_compose_may_write_over_one_of_its_sources():
    """Appending to a log is done this way."""
    storage = a_storage()
    put(storage, "log", b"old ")
    put(storage, "more", b"new")
    made = storage.objects.compose([source("log"), source("more")], "data", "log", {}, ANY)
    assert storage.objects.read(made) == b"old new"


def test_a_copy_keeps_data_and_fields_unless_the_body_replaces_them():
    """Fields of the body replace those of the source."""
    storage = a_storage()
    put(storage, "a", b"hello", contentType="text/plain", metadata={"k": "v"})
    same = storage.objects.copy(source("a"), "data", "b", {}, MUST_NOT_EXIST)
    assert same.fields == {"contentType": "text/plain", "metadata": {"k": "v"}}
    other = storage.objects.copy(source("a"), "data", "c", {"metadata": {"n": "1"}}, ANY)
    assert other.fields["metadata"] == {"n": "1"}
    assert storage.objects.read(other) == b"hello"


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "ü" * 513, None])
def test_a_bad_object_name_is_refused(name):
    """1-1024 bytes of UTF-8 without line breaks."""
    assert refused(put, a_storage(), name) == 400


def test_a_chunk_sent_twice_counts_once_and_a_gap_is_not_taken():
    """After a lost answer the client may repeat a chunk; it can never skip one."""
    storage = a_storage()
    session = storage.uploads.start("data", "a", {}, ANY).id
    assert storage.uploads.append(session, 0, b"0123") == 4
    assert storage.uploads.append(session, 0, b"0123") == 4
    assert storage.uploads.append(session, 2, b"2345") == 6
    assert storage.uploads.append(session, 8, b"89") == 6
    assert refused(storage.uploads.finish, session, 10, {}) == 400
    assert storage.objects.read(storage.uploads.finish(session, 6, {})) == b"012345"


def test_a_finished_upload_answers_the_same_object_again():
    """The answer to the last chunk may be lost, and the object replaced before the client asks again."""
    storage = a_storage()
    session = storage.uploads.start("data", "a", {}, MUST_NOT_EXIST).id
    storage.uploads.append(session, 0, b"abc")
    made = storage.uploads.finish(session, 3, {})
    assert storage.uploads.finish(session, 3, {}) == made
    put(storage, "a", b"newer")
    assert storage.uploads.finished(session) == made


def test_a_race_lost_during_an_upload_is_412_at_its_end():
    """The precondition is checked when the session opens and again when the object is made."""
    backend = MemoryBlobs()
    storage = a_storage(backend)
    session = storage.uploads.start("data", "a", {}, MUST_NOT_EXIST).id
    storage.uploads.append(session, 0, b"late")
    put(storage, "a", b"first")
    assert refused(storage.uploads.finish, session, 4, {}) == 412
    assert storage.objects.read(storage.objects.get("data", "a")) == b"first"
    assert len(backend.blobs()) == 1
    assert refused(storage.uploads.start, "data", "a", {}, MUST_NOT_EXIST) == 412


def test_a_cancelled_upload_is_unknown_and_leaves_no_bytes():
    """Also one that is a week old, when the next begins."""
    backend = MemoryBlobs()
    storage = a_storage(backend)
    first = storage.uploads.start("data", "a", {}, ANY).id
    storage.uploads.append(first, 0, b"abc")
    storage.uploads.cancel(first)
    assert refused(storage.uploads.received, first) == 404
    old = storage.uploads.start("data", "b", {}, ANY).id
    storage.uploads.append(old, 0, b"abc")
    storage.clock.advance(8 * 24 * 3600.0)
    storage.uploads.start("data", "c", {}, ANY)
    assert refused(storage.uploads.received, old) == 404
    assert backend.blobs() == []
