"""Manifests in the bucket: machines write them, and `down`, `checkpoints` and `fetch` read them on the laptop."""

import hashlib
import json
import shutil
import time
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.agent.checkpoints.links import make_links
from orchestrator.contract.bucket import limits, manifest, uncommitted_manifest
from orchestrator.contract.bucket.completeness import completed_by
from orchestrator.contract.formats.keras import METADATA
from orchestrator.contract.formats.reading.whole import json_damage, safetensors_damage
from orchestrator.contract.json_values import json_object
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.domain.ports import MAX_BYTES, StoredObject
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.fetch import Download, fetch
from orchestrator.errors import TransientError
from tests.security.test_forgeries import EVIL

WHOLE = {
    "schema": 1, "step": 20, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "folder": ".",
    "files": [{"name": "weights", "size": 4000, "sha256": "a" * 64, "modified": 5}], "at": 1.0e9,
    "format": "torch", "told": 20,
}  # fmt: skip
UNCOMMITTED = {
    "schema": 1, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "bundle": "b", "settings": "s",
    "format": "torch", "why": "ended", "complete": True, "at": 1.0e9,
    "files": [{"name": "home/a", "size": 3, "sha256": "", "object": "unclaimed/g1/w0/home/a"}],
    "skipped": [{"name": "x", "why": "symlink"}],
}  # fmt: skip
KINDS = {
    "checkpoint": (manifest.parse, WHOLE, "checkpoints/00000020/g1/w0.manifest.json"),
    "uncommitted": (uncommitted_manifest.parse, UNCOMMITTED, "unclaimed/g1/w0.manifest.json"),
}
HUGE = (10**400, -(10**400))
"""Whole numbers of JSON that no float holds."""


def forgeries(whole):
    """Yield a manifest with each value in each field, of its files too, and without each field."""
    for name in whole:
        yield {key: value for key, value in whole.items() if key != name}
        for value in (*EVIL, *HUGE):
            yield {**whole, name: value}
    for name in ("files", "skipped"):
        for key in whole.get(name, [{}])[0]:
            for value in (*EVIL, *HUGE):
                yield {**whole, name: [{**whole[name][0], key: value}]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_times_every_type(kind):
    """What is read fits, or is no manifest: for whoever reads it, the next machine's agent as well."""
    parse, whole, name = KINDS[kind]
    assert parse(json.dumps(whole).encode(), name)
    texts = [json.dumps(body).encode() for body in forgeries(whole)]
    texts += [
        b"[" * 100_000,
        b'{"schema":1,"files":' + b"[" * 100_000,
        b"\xff",
        b"",
        b"null",
        b"5",
        b'"x"',
        b"[]",
    ]
    for text in texts:
        try:
            found = parse(text, name)
        except DamagedError:
            continue
        assert 0 <= found.worker < found.workers <= 4096
        assert 0 <= found.at <= 1e11
        assert all(0 <= file.size <= 1 << 53 for file in found.files)


FILE = WHOLE["files"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"links": [["a", "a"], ["a/b", "x"]]},
        {"links": [["a", "b"], ["b", "a"]]},
        {"links": [["a", "x"], ["a/b", "x"]]},
        {"links": [["a", "x"], ["a", "y"]]},
        {"links": [["b", "a/x"], ["a", "c"]]},
        {"links": [["n" * 256, "x"]]},
        {"links": [[f"l{number}", "x"] for number in range(manifest.MAX_LINKS + 1)]},
        {"files": [FILE, FILE]},
        {"files": [FILE, {**FILE, "name": "weights/x"}]},
        {"files": [FILE, {**FILE, "name": "./weights"}]},
        {"files": [{**FILE, "name": "n" * 256}]},
        {"folder": "n" * 256},
        {"folder": "a/" * 600 + "a"},
        {"folder": "\ud800"},
        {"links": [["a/" * 600 + "a", "x"]]},
        {"links": [["a", "t/" * 3000 + "t"]]},
    ],
)
def test_what_no_folder_can_hold_is_no_manifest(changes):
    """Each restore would fail with it, on every machine that comes."""
    with pytest.raises(DamagedError):
        manifest.parse(json.dumps({**WHOLE, **changes}).encode(), "here")


def test_links_that_an_agent_has_written_are_made_again():
    """As many as it writes, beside and below what they lead to."""
    links = [[f"l{number}", "step_40"] for number in range(manifest.MAX_LINKS - 2)]
    links += [["runs/a/latest", "runs/a/step_40"], ["runs/latest", "runs/a"]]
    found = manifest.parse(json.dumps({**WHOLE, "links": links}).encode(), "here")
    assert [list(pair) for pair in found.links] == links


def test_a_link_where_no_folder_can_be_is_skipped(tmp_path):
    """The rest of the checkpoint is restored all the same."""
    (tmp_path / "weights").write_bytes(b"w")
    make_links(tmp_path, [("weights/x", "a"), ("latest", "weights")])
    assert (tmp_path / "latest").read_bytes() == b"w"


def test_a_link_may_have_the_longest_name(tmp_path):
    """What it is called while it is made has to fit too."""
    (tmp_path / "weights").write_bytes(b"w")
    make_links(tmp_path, [("n" * 255, "weights")])
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"w", b"w"]


def test_a_manifest_without_files_is_no_checkpoint():
    """Later machines would go on from nothing; workers that save nothing have one beside worker 0's."""
    empty = manifest.parse(json.dumps({**WHOLE, "files": []}).encode(), "here")
    assert completed_by([empty]) is None
    first, second = replace(empty, workers=2), replace(empty, workers=2, worker=1)
    assert completed_by([first, second]) is None
    whole = manifest.parse(json.dumps({**WHOLE, "workers": 2}).encode(), "here")
    assert completed_by([whole, second]).step == WHOLE["step"]


def test_checkpoints_says_why_planted_manifests_do_not_count(user):
    """One without files, and one that lies in the place of another step."""
    text = json.dumps({**WHOLE, "files": []}).encode()
    user.cloud.put_object("checkpoints/00000020/g1/w0.manifest.json", text)
    user.cloud.put_object("checkpoints/00000030/g1/w0.manifest.json", json.dumps(WHOLE).encode())
    found = {one["step"]: one for one in user.run("checkpoints", "--json").document["checkpoints"]}
    assert (found[20]["complete"], found[20]["message"]) == (False, "no manifest names a file")
    assert not found[30]["complete"]
    assert "of another checkpoint" in found[30]["message"]


LETTERS = str.maketrans("0123456789", "abcdefghij")
SERIES = [f"{str(n).translate(LETTERS)}_model_{step}.pt" for n in range(9000) for step in (n % 2, 5 + n % 2)]
MANY = {
    "folders of other dates": [f"{10**10 + n}/model_{n}.pt" for n in range(12_000)],
    "series that end alike": SERIES,
    "steps": [f"step_{n}/weights" for n in range(20_000)],
}


@pytest.mark.parametrize("kind", MANY)
def test_very_many_objects_take_seconds(kind):
    """Names are free, and looking at them was quadratic: a minute for some thousands, then hours."""
    store = SimpleNamespace(
        list=lambda _prefix: [StoredObject(f"checkpoints/{name}", 1, 1, 1.0) for name in MANY[kind]],
        read=lambda *_words, **_more: None,
    )
    began = time.process_time()
    for format_ in ("auto", "marker"):
        read_checkpoints(store, CheckpointSpec(dir="bucket", format=format_))
    assert time.process_time() - began < 20


def put_manifests(user, **changes):
    """Write both kinds of manifests with *changes*, of their first file too."""
    for _, whole, name in KINDS.values():
        file = {key: changes.get(key, value) for key, value in whole["files"][0].items()}
        body = {key: changes.get(key, value) for key, value in whole.items()}
        user.cloud.put_object(name, json.dumps({**body, "files": [file]}).encode())


@pytest.mark.parametrize(
    "changes", [{"size": 10**400}, {"workers": 10**12}, {"at": 1e308}, {"attempt": 10**400}]
)
def test_no_manifest_keeps_down_from_deleting(user, changes):
    """It names uncommitted files, perhaps the only copy of the model, before it asks; then it goes on."""
    put_manifests(user, **changes)
    user.cloud.put_object("checkpoints/00000020/g1/w0/weights", b"w")
    for words in ("checkpoints", "fetch", "fetch --uncommitted", "status"):
        assert "this is a bug" not in user.run(*words.split()).err, words
    said = user.run("down", "--yes")
    assert said.code == 0, said.err
    assert not user.cloud.nodes()


def test_very_many_manifests_are_not_all_read(user, monkeypatch):
    """Else `down` would read for days before it deletes; those of the newest machines come first."""
    monkeypatch.setattr(limits, "MANIFESTS", replace(limits.MANIFESTS, many=5))
    for number in range(1, 40):
        name = f"unclaimed/g{number}/w0.manifest.json"
        user.cloud.put_object(name, json.dumps({**UNCOMMITTED, "incarnation": number}).encode())
        user.cloud.put_object(f"checkpoints/{number:08d}/g1/w0.manifest.json", b"{}")
    before = user.cloud.model.calls["storage.objects.get"]
    found = user.run("checkpoints", "--json").document
    assert [one["incarnation"] for one in found["uncommitted"]] == [39, 38, 37, 36, 35]
    assert [one["message"] for one in found["checkpoints"]].count(
        "there are too many manifests: not all were read"
    ) == 34
    assert user.cloud.model.calls["storage.objects.get"] - before < 20


def test_the_room_for_uncommitted_files_is_what_the_bucket_says(user, monkeypatch):
    """A manifest that names large objects by small sizes, or one of them often, fills no disk."""
    user.cloud.put_object("unclaimed/g1/w0/home/a", b"x" * 100_000)
    file = UNCOMMITTED["files"][0]
    twice = [{**file, "size": 1}, {**file, "size": 1, "name": "home/b"}]
    user.cloud.put_object(KINDS["uncommitted"][2], json.dumps({**UNCOMMITTED, "files": twice}).encode())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=150_000))
    said = user.run("fetch", "--uncommitted", "--output", str(user.folder / "model"))
    assert (said.code, "has room for" in said.err) == (2, True), said.err
    assert not list(user.folder.glob("model*"))


def test_the_room_for_an_object_in_no_folder_is_looked_for_too(user, monkeypatch):
    """It is listed by its own name."""
    user.cloud.put_object("large", b"x" * 200_000)
    planted = [{**UNCOMMITTED["files"][0], "object": "large"}]
    user.cloud.put_object(KINDS["uncommitted"][2], json.dumps({**UNCOMMITTED, "files": planted}).encode())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=150_000))
    said = user.run("fetch", "--uncommitted", "--output", str(user.folder / "model"))
    assert (said.code, "has room for" in said.err) == (2, True), said.err


def test_what_grows_once_it_was_listed_does_not_come(tmp_path):
    """A machine may replace objects while others are copied: no more comes than room was looked for."""
    came = []

    class Growing:
        def download(self, name, path, sized=None, streams=1):
            sized({"a": 3, "b": 10**12}[name])
            came.append(name)
            path.write_bytes(b"one")
            return hashlib.sha256(b"one").hexdigest()

    download = Download("step 1", 6, (("a", "", "a"), ("b", "", "b")), {}, "again")
    with pytest.raises(TransientError, match="is larger than when the bucket was listed"):
        fetch(Growing(), download, tmp_path / "model", lambda _: None)
    # Both come side by side and share the room, so either may be the one too much.
    assert "b" not in came
    assert not list(tmp_path.iterdir())


BOTH = [
    {
        "name": "home/a",
        "size": 3,
        "sha256": hashlib.sha256(b"one").hexdigest(),
        "object": "unclaimed/g1/w0/1",
    },
    {
        "name": "home/a",
        "size": 3,
        "sha256": hashlib.sha256(b"two").hexdigest(),
        "object": "unclaimed/g1/w0/2",
    },
]
ONE, TWO = ({**UNCOMMITTED, "files": [file]} for file in BOTH)


@pytest.mark.parametrize(
    "manifests",
    [
        {"w0": {**UNCOMMITTED, "files": BOTH}},
        {"w0": {**UNCOMMITTED, "files": [BOTH[0], {**BOTH[1], "name": "home/./a"}]}},
        {"w0": ONE, "w00": TWO},
        {"w0": ONE, "w\u0660": TWO},
        {"w0": ONE, "w1": {**TWO, "worker": 1, "workers": 2}},
    ],
)
def test_no_two_objects_come_to_one_file(user, manifests):
    """They would be written over each other at the same time, and each would have been found right."""
    for number, data in enumerate((b"one", b"two"), 1):
        user.cloud.put_object(f"unclaimed/g1/w0/{number}", data)
    for worker, body in manifests.items():
        user.cloud.put_object(f"unclaimed/g1/{worker}.manifest.json", json.dumps(body).encode())
    said = user.run("fetch", "--uncommitted", "--json", "--output", str(user.folder / "model"))
    files = [path for path in sorted(user.folder.glob("model/**/a")) if path.is_file()]
    assert [path.read_bytes() for path in files] in ([], [b"one"], [b"one", b"two"])
    assert said.code == 0 or "there are no uncommitted files" in said.out, said.out
    assert said.code != 0 or said.document["files_count"] == len(files)


@pytest.mark.parametrize("key", ["name", "object"])
def test_half_of_a_character_is_in_no_name(key):
    """JSON may hold it, and what has it in its name can be neither asked for nor written."""
    broken = {**UNCOMMITTED, "files": [{**UNCOMMITTED["files"][0], key: "home/\ud800"}]}
    with pytest.raises(DamagedError):
        uncommitted_manifest.parse(json.dumps(broken).encode(), "unclaimed/g1/w0.manifest.json")


@pytest.mark.parametrize("text", [b'{"x":' + b"[" * 200_000, b'{"x":[' + b"{}," * (20 << 20)])
def test_what_a_format_reads_in_the_bucket_is_small_or_nothing(text):
    """Lists that Keras and TensorFlow keep have some lines: 60 MB of braces took 1.7 GB of memory to read."""
    store = SimpleNamespace(
        list=lambda _prefix: [StoredObject(f"checkpoints/{METADATA}", 1, 1, 1.0)],
        read=lambda name, offset=0, limit=MAX_BYTES: StoredObject(name, 1, 1, 1.0, text[offset:][:limit]),
    )
    tracemalloc.start()
    try:
        assert not any(one.complete for one in read_checkpoints(store, CheckpointSpec("keras", dir="bucket")))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_json_that_is_nested_without_end_is_none_on_a_machine_too(tmp_path):
    """The agent of the next machine looks at what the last one saved."""
    nested = b'{"x":' + b"[" * 200_000
    header = tmp_path / "model.safetensors"
    header.write_bytes(len(nested).to_bytes(8, "little") + nested)
    (tmp_path / METADATA).write_bytes(nested)
    assert safetensors_damage(header)
    assert json_damage(tmp_path / METADATA)
    assert json_object(tmp_path / METADATA) is None
