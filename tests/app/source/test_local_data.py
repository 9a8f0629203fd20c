"""The job's data on this computer: found, read once, refused where it cannot work."""

import hashlib
import json
import os
import time

import pytest

from orchestrator.app.source import local_data as module
from orchestrator.app.source.local_data import listing, scan
from orchestrator.errors import UsageError


@pytest.fixture
def base(tmp_path):
    """Make a folder with data beside a deployment file."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "train.bin").write_bytes(b"first")
    (tmp_path / "data" / "deep" / "b.bin").write_bytes(b"second")
    (tmp_path / "corpus.txt").write_bytes(b"text")
    return tmp_path


def look(base, **wanted):
    """Scan with a cache beside the data."""
    return scan(wanted or {"data": "./data"}, base, base / "sums.json")


def names(sets):
    """Return the places of all files by set."""
    return {one.name: [file.relative for file in one.files] for one in sets}


def test_folders_files_and_buckets(base):
    """A single file is a folder of one; of a bucket nothing is looked at here."""
    sets = look(base, data="./data", text="corpus.txt", c4="gs://other/c4", far=str(base / "data"))
    assert names(sets) == {
        "c4": [], "data": ["deep/b.bin", "train.bin"], "far": ["deep/b.bin", "train.bin"],
        "text": ["corpus.txt"],
    }  # fmt: skip
    listed = {one["name"]: one for one in json.loads(listing(sets))["sets"]}
    assert listed["c4"]["source"] == "gs://other/c4"
    assert listed["text"]["files"] == [
        {"name": "corpus.txt", "size": 4, "sha256": hashlib.sha256(b"text").hexdigest()}
    ]
    assert listed["data"]["source"] == ""


def test_ignore_patterns_of_the_code_do_not_hold_for_data(base):
    """What .gitignore excludes is what job.data is for."""
    (base / ".gitignore").write_text("*.bin\n")
    (base / "data" / ".gitignore").write_text("*\n")
    assert "train.bin" in names(look(base))["data"]


def test_the_list_depends_on_content_only(base):
    """Times do not matter, bytes do."""
    before = listing(look(base))
    os.utime(base / "data" / "train.bin", (1, 1))
    assert listing(look(base)) == before
    (base / "data" / "train.bin").write_bytes(b"FIRST")
    assert listing(look(base)) != before


def test_what_has_not_changed_is_not_read_again(base, monkeypatch):
    """Also after a cache that cannot be read; a changed file alone is read."""
    first = look(base)
    read = []
    genuine = module._read
    monkeypatch.setattr(module, "_read", lambda path: read.append(path.name) or genuine(path))
    assert look(base) == first
    assert read == []
    (base / "data" / "train.bin").write_bytes(b"other")
    look(base)
    assert read == ["train.bin"]
    (base / "sums.json").write_text("[1")
    look(base)
    assert sorted(read) == ["b.bin", "train.bin", "train.bin"]


def test_a_file_that_changes_while_it_is_read_is_refused(base, monkeypatch):
    """The list would name bytes that nobody has."""
    genuine = module._read

    def write_on(path):
        found = genuine(path)
        with path.open("ab") as file:
            file.write(b"more")
        return found

    monkeypatch.setattr(module, "_read", write_on)
    with pytest.raises(UsageError, match="changed while it was read"):
        look(base)


@pytest.mark.parametrize("case", ["missing", "empty", "folder link", "pipe", "key", "dangling"])
def test_what_cannot_be_sent_is_refused_by_name(base, case):
    """One error, with its place; nothing was sent."""
    folder = base / "data"
    if case == "empty":
        (base / "empty").mkdir()
    if case == "folder link":
        (folder / "odd").symlink_to(base)
    if case == "pipe":
        os.mkfifo(folder / "odd")
    if case == "key":
        (folder / ".env").touch()
    if case == "dangling":
        (folder / "odd").symlink_to("nowhere")
    sources = {"missing": "./absent", "empty": "./empty"}
    with pytest.raises(UsageError) as caught:
        look(base, data=sources.get(case, "./data"))
    assert caught.value.code == "TPU-144"
    assert {"missing": "absent", "empty": "empty", "key": ".env"}.get(case, "odd") in caught.value.message


def test_too_many_files_are_refused_with_the_way_out(base, monkeypatch):
    """Each is an object; packed ones read faster anyway."""
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(UsageError, match="more than 1") as caught:
        look(base)
    assert "tar" in caught.value.hint


def test_a_link_to_a_file_is_followed(base):
    """Caches of datasets are made of such connections."""
    (base / "data" / "link.bin").symlink_to(base / "corpus.txt")
    sums = {f.relative: f.sha256 for f in look(base)[0].files}
    assert sums["link.bin"] == hashlib.sha256(b"text").hexdigest()


def test_ten_thousand_files_that_are_known_take_no_time(tmp_path):
    """One look at each, none is opened."""
    (tmp_path / "data").mkdir()
    for number in range(10_000):
        (tmp_path / "data" / f"{number}").touch()
    look(tmp_path)
    began = time.monotonic()
    assert len(look(tmp_path)[0].files) == 10_000
    assert time.monotonic() - began < 20
