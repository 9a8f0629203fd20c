"""Both backends keep the same promises; the folder keeps them over a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.emulator.state.storage.blobs import BLOCK, Blobs, FolderBlobs, MemoryBlobs, pieces
from tests.emulator.storage_kit import ANY, MUST_NOT_EXIST, a_storage, put

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from orchestrator.clock import SystemClock
from orchestrator.emulator.state.storage.blobs import FolderBlobs
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions

storage = Storage(SystemClock(), FolderBlobs(Path(sys.argv[1])))
storage.buckets.create("p", {"name": "data"})
for number in range(1_000_000):
    name = f"object-{number % 7}"
    made = storage.objects.insert("data", name, b"%d." % number * 1000, {}, Preconditions())
    print(name, number, made.generation, flush=True)
"""


@pytest.fixture(params=["memory", "folder"])
def blobs(request, tmp_path) -> Blobs:
    """Return each backend, empty."""
    return MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path / "store")


def test_a_blob_grows_at_its_end_and_is_read_by_range(blobs):
    """Chunks join in order, and a range ends before its end."""
    assert blobs.append("b", b"abc") == 3
    assert blobs.append("b", b"defg") == 7
    assert blobs.read("b", 2, 5) == b"cde"
    assert blobs.read("b", 0, 7) == b"abcdefg"


def test_an_unknown_blob_is_empty_and_may_be_removed(blobs):
    """Size 0 for what does not exist; removing it is no error."""
    blobs.remove("none")
    assert blobs.size("none") == 0
    assert blobs.blobs() == []


def test_pieces_are_bounded_and_complete(blobs):
    """A blob larger than a block comes in several pieces that join to the whole."""
    data = os.urandom(BLOCK + 5)
    blobs.append("b", data)
    got = list(pieces(blobs, "b"))
    assert [len(piece) for piece in got] == [BLOCK, 5]
    assert b"".join(got) == data


def test_a_joined_blob_outlives_its_parts(blobs):
    """Also one that is joined of joined ones; a range may lie across their borders."""
    for name, data in (("a", b"abc"), ("b", b""), ("c", b"defg")):
        blobs.append(name, data)
    blobs.join("abc", ["a", "b", "c"])
    blobs.join("twice", ["abc", "a"])
    for name in ("a", "b", "c", "abc"):
        blobs.remove(name)
    assert blobs.blobs() == ["twice"]
    assert blobs.size("twice") == 10
    assert blobs.read("twice", 0, 10) == b"abcdefgabc"
    assert blobs.read("twice", 2, 8) == b"cdefga"
    blobs.remove("twice")
    assert blobs.blobs() == []


def test_what_is_being_read_stays_readable(tmp_path):
    """An object may be replaced while it is downloaded: the client gets the one it asked for."""
    blobs = FolderBlobs(tmp_path / "store")
    data = os.urandom(3 * BLOCK)
    blobs.append("b", data)
    found = blobs.open("b", 5, len(data))
    blobs.remove("b")
    assert b"".join(found.pieces()) == data[5:]
    assert found.size == len(data) - 5


def test_many_pieces_are_one_blob(blobs):
    """More than one call of the system takes."""
    pieces_ = [b"%d," % number for number in range(3000)]
    assert blobs.append("b", *pieces_) == len(b"".join(pieces_))
    assert blobs.read("b", 0, 20_000) == b"".join(pieces_)


def test_a_record_is_replaced_and_forgotten(blobs):
    """One key holds one record, of its kind only."""
    blobs.save("object", "data/a", {"n": 1})
    blobs.save("object", "data/a", {"n": 2})
    blobs.save("bucket", "data/a", {"n": 3})
    assert blobs.records("object") == [{"n": 2}]
    blobs.forget("object", "data/a")
    blobs.forget("object", "data/a")
    assert blobs.records("object") == []
    assert blobs.records("bucket") == [{"n": 3}]


def test_names_of_any_length_and_character_can_be_keys(blobs):
    """Object names have up to 1024 bytes, slashes and any letters."""
    keys = ["x/" + "ü" * 500, "x/a/b", "x/a%2Fb", "x/.."]
    for key in keys:
        blobs.save("object", key, {"key": key})
    assert sorted(r["key"] for r in blobs.records("object")) == sorted(keys)


def test_a_storage_opened_again_holds_everything(tmp_path):
    """Buckets, policies, objects and open uploads come back from the folder."""
    first = a_storage(FolderBlobs(tmp_path))
    first.buckets.set_policy("data", {"bindings": [{"role": "r", "members": ["m"]}]})
    made = put(first, "a/b", b"hello", metadata={"step": "7"})
    session = first.uploads.start("data", "big", {}, MUST_NOT_EXIST)
    first.uploads.append(session.id, 0, b"12345")

    again = a_storage(FolderBlobs(tmp_path))
    assert again.buckets.policy("data") == first.buckets.policy("data")
    assert again.objects.get("data", "a/b") == made
    assert again.objects.read(made) == b"hello"
    assert again.uploads.received(session.id) == 5
    again.uploads.append(session.id, 5, b"678")
    assert again.objects.read(again.uploads.finish(session.id, 8, {})) == b"12345678"


def test_bytes_that_no_record_names_are_removed_at_the_start(blobs):
    """A process killed between bytes and record leaves such a blob; open uploads keep theirs."""
    first = a_storage(blobs)
    held = put(first, "a")
    session = first.uploads.start("data", "big", {}, ANY)
    first.uploads.append(session.id, 0, b"123")
    blobs.append("orphan", b"half written")
    a_storage(blobs)
    assert sorted(blobs.blobs()) == sorted([held.blob, session.id])


def test_generations_grow_over_a_restart(tmp_path):
    """A generation is never used twice, though the clock of the new process stands still."""
    first = a_storage(FolderBlobs(tmp_path))
    old = [put(first, "a").generation for _ in range(5)][-1]
    assert put(a_storage(FolderBlobs(tmp_path)), "a").generation > old


def test_a_kill_between_object_and_session_does_not_reopen_the_upload(tmp_path):
    """A session whose bytes already are an object answers with that object and takes no more bytes."""
    blobs = FolderBlobs(tmp_path)
    first = a_storage(blobs)
    session = first.uploads.start("data", "big", {}, ANY)
    first.uploads.append(session.id, 0, b"12345")
    made = first.objects.put_blob("data", "big", session.id, {}, ANY)

    again = a_storage(FolderBlobs(tmp_path))
    assert again.uploads.finished(session.id) == made


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path):
    """After SIGKILL in the midst of writing, every acknowledged write is there or a newer one is."""
    store = tmp_path / "store"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    lines = [child.stdout.readline().split() for _ in range(60)]
    child.send_signal(signal.SIGKILL)
    lines += [line.split() for line in child.stdout.read().splitlines()]
    child.wait()
    acknowledged = {name: (int(number), int(generation)) for name, number, generation in lines}

    storage = a_storage(FolderBlobs(store))
    for name, (number, generation) in acknowledged.items():
        held = storage.objects.get("data", name)
        assert held.generation >= generation
        stored = int(storage.objects.read(held).split(b".")[0])
        assert stored >= number
        assert storage.objects.read(held) == b"%d." % stored * 1000
    assert len(FolderBlobs(store).blobs()) == len(storage.objects.all())
