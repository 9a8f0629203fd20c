"""Large objects come in ranges, several at a time: whole and of one generation, or not at all."""

import hashlib
import os
from dataclasses import replace

import pytest

from orchestrator.agent.cloud import transfers
from orchestrator.contract.machine_errors import DamagedError, TransientError
from orchestrator.emulator.http.router import Response
from tests.agent.transfer_kit import DATA, NAME, PART, a_bucket, answering, body, put, small_parts


@pytest.fixture
def bucket(lab, monkeypatch):
    """Return the agent's client of a bucket; a file of some kilobytes is a large one."""
    small_parts(monkeypatch)
    return a_bucket(lab)


def test_a_large_object_comes_in_ranges_of_one_generation(lab, bucket, tmp_path):
    """Its digest is computed on the way, of the kind that the caller has one of."""
    put(lab, DATA)
    observed = answering(lab, lambda _request, _kind, _number, true: true())
    for name in ("sha256", "md5"):
        assert (
            bucket.download(NAME, tmp_path / "copy", len(DATA), name) == hashlib.new(name, DATA).hexdigest()
        )
        assert (tmp_path / "copy").read_bytes() == DATA
    assert observed == {"stat": 2, "range": 22}


def test_only_a_file_that_stays_is_flushed_to_the_disk(lab, bucket, tmp_path, monkeypatch):
    """An archive that is unpacked and deleted need not survive a power loss, and the disk is busy then."""
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    for data in (DATA, DATA[:PART]):
        put(lab, data)
        bucket.download(NAME, tmp_path / "archive", len(data), durable=False)
        assert flushed == []
        bucket.download(NAME, tmp_path / "file", len(data))
        assert len(flushed) == 1
        flushed.clear()


def short(answer):
    """Cut the body; the length says so."""
    cut = body(answer)[:-1]
    return replace(answer, body=cut, source=None, headers={**answer.headers, "content-length": str(len(cut))})


WRONG = {
    "another range": lambda true: replace(
        true, headers={**true.headers, "content-range": f"bytes 0-{PART - 1}/{len(DATA)}"}
    ),
    "another size": lambda true: replace(
        true, headers={**true.headers, "content-range": true.headers["content-range"] + "0"}
    ),
    "no range": lambda true: replace(true, headers={k: v for k, v in true.headers.items() if k != "content-range"}),
    "all of it": lambda true: Response(200, DATA, {"x-goog-generation": true.headers["x-goog-generation"]}),
    "a short body": short,
    "a longer body": lambda true: Response(
        206, body(true) + b"x", {k: v for k, v in true.headers.items() if k != "content-length"}
    ),
    "nothing": lambda true: replace(
        true, body=b"", source=None, headers={**true.headers, "content-length": "0"}
    ),
    "busy": lambda _true: Response(503, b""),
    "too many": lambda _true: Response(429, b""),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_answer_to_a_range_is_asked_again(lab, bucket, tmp_path, how):
    """What does not hold just the bytes that were asked for is not written anywhere."""
    put(lab, DATA)
    answering(
        lab,
        lambda _request, what, number, true: WRONG[how](true()) if (what, number) == ("range", 5) else true(),
    )
    assert bucket.download(NAME, tmp_path / "copy", len(DATA)) == hashlib.sha256(DATA).hexdigest()
    assert (tmp_path / "copy").read_bytes() == DATA


@pytest.mark.parametrize("how", WRONG)
def test_a_server_that_always_answers_wrong_is_refused(lab, bucket, tmp_path, monkeypatch, how):
    """In the time of one part, with an error and without a digest."""
    monkeypatch.setattr(transfers, "PART_TIMEOUT", 0.5)
    put(lab, DATA)
    answering(
        lab,
        lambda request, what, _number, true: (
            WRONG[how](true())
            if what == "range" and not request.headers["range"].startswith("bytes=0-")
            else true()
        ),
    )
    with pytest.raises(TransientError):
        bucket.download(NAME, tmp_path / "copy", len(DATA))


@pytest.mark.parametrize("lacks", ["", "what is asked for", "what is shown"])
def test_two_generations_are_never_mixed(lab, bucket, tmp_path, lacks):
    """An object of the same size takes its place in the middle, also behind a cache: all of the new one comes."""
    newer = bytes(reversed(DATA))
    put(lab, DATA)

    def swapped(request, what, number, true):
        if what != "range":
            return true()
        if number == 6:
            put(lab, newer)
        if lacks == "what is asked for":
            query = {key: value for key, value in request.query.items() if key != "generation"}
            return true(replace(request, query=query))
        answer = true()
        hidden = "x-goog-generation" if lacks else ""
        return replace(answer, headers={key: one for key, one in answer.headers.items() if key != hidden})

    answering(lab, swapped)
    digest = bucket.download(NAME, tmp_path / "copy", len(DATA))
    assert (tmp_path / "copy").read_bytes() == newer
    assert digest == hashlib.sha256(newer).hexdigest()


def test_an_object_that_always_changes_is_refused(lab, bucket, tmp_path):
    """After three times; nothing is said to be whole."""
    put(lab, DATA)

    def restless(_request, what, _number, true):
        if what == "range":
            put(lab, DATA)
        return true()

    answering(lab, restless)
    with pytest.raises(DamagedError, match="changes faster"):
        bucket.download(NAME, tmp_path / "copy", len(DATA))


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_an_object_of_another_size_is_torn_before_a_byte_of_it_comes(lab, bucket, tmp_path, size):
    """Its manifest says how large it is."""
    put(lab, DATA)
    observed = answering(lab, lambda _request, _kind, _number, true: true())
    with pytest.raises(DamagedError, match=f"has {len(DATA)} bytes, not {size}"):
        bucket.download(NAME, tmp_path / "copy", size)
    assert observed["range"] == 0


def test_an_object_that_is_gone_is_torn(bucket, tmp_path):
    """Not there is no empty file."""
    with pytest.raises(DamagedError, match="not there"):
        bucket.download(NAME, tmp_path / "copy", len(DATA))
