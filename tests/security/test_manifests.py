"""
Manifests in the bucket: machines write them, and `down`, `checkpoints` and `fetch` read them on the laptop.
"""

import json
import shutil
from types import SimpleNamespace

import pytest

from orchestrator.agent import manifest, unclaimed
from orchestrator.agent.errors import TornError
from orchestrator.engine import checkpoints
from tests.security.test_forgeries import EVIL

WHOLE = {
    "schema": 1, "step": 20, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "folder": ".",
    "files": [{"name": "weights", "size": 4000, "sha256": "a" * 64, "modified": 5}], "at": 1.0e9,
    "format": "torch", "told": 20,
}  # fmt: skip
LEFT = {
    "schema": 1, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "bundle": "b", "settings": "s",
    "format": "torch", "why": "ended", "complete": True, "at": 1.0e9,
    "files": [{"name": "home/a", "size": 3, "sha256": "", "object": "unclaimed/g1/w0/home/a"}],
    "skipped": [{"name": "x", "why": "symlink"}],
}  # fmt: skip
KINDS = {
    "checkpoint": (manifest.parse, WHOLE, "checkpoints/00000020/g1/w0.manifest.json"),
    "unclaimed": (unclaimed.parse, LEFT, "unclaimed/g1/w0.manifest.json"),
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
        except TornError:
            continue
        assert 0 <= found.worker < found.workers <= 4096
        assert 0 <= found.at <= 1e11
        assert all(0 <= file.size <= 1 << 53 for file in found.files)


def put_manifests(desk, **changes):
    """Write both kinds of manifests with *changes*, of their first file too."""
    for _, whole, name in KINDS.values():
        file = {key: changes.get(key, value) for key, value in whole["files"][0].items()}
        body = {key: changes.get(key, value) for key, value in whole.items()}
        desk.town.put_object(name, json.dumps({**body, "files": [file]}).encode())


@pytest.mark.parametrize(
    "changes", [{"size": 10**400}, {"workers": 10**12}, {"at": 1e308}, {"attempt": 10**400}]
)
def test_no_manifest_keeps_down_from_deleting(desk, changes):
    """It names unclaimed files, perhaps the only copy of the model, before it asks; then it goes on."""
    put_manifests(desk, **changes)
    desk.town.put_object("checkpoints/00000020/g1/w0/weights", b"w")
    for words in ("checkpoints", "fetch", "fetch --unclaimed", "status"):
        assert "this is a bug" not in desk.run(*words.split()).err, words
    said = desk.run("down", "--yes")
    assert said.code == 0, said.err
    assert not desk.town.nodes()


def test_very_many_manifests_are_not_all_read(desk, monkeypatch):
    """Else `down` would read for days before it deletes; those of the newest machines come first."""
    monkeypatch.setattr(checkpoints, "MOST_MANIFESTS", 5)
    for number in range(1, 40):
        name = f"unclaimed/g{number}/w0.manifest.json"
        desk.town.put_object(name, json.dumps({**LEFT, "incarnation": number}).encode())
        desk.town.put_object(f"checkpoints/{number:08d}/g1/w0.manifest.json", b"{}")
    before = desk.town.cloud.calls["storage.objects.get"]
    found = desk.run("checkpoints", "--json").document
    assert [one["incarnation"] for one in found["unclaimed"]] == [39, 38, 37, 36, 35]
    assert [one["why"] for one in found["checkpoints"]].count(
        "there are too many manifests: not all were read"
    ) == 34
    assert desk.town.cloud.calls["storage.objects.get"] - before < 20


def test_the_room_for_unclaimed_files_is_what_the_bucket_says(desk, monkeypatch):
    """A manifest that names large objects by small sizes, or one of them often, fills no disk."""
    desk.town.put_object("unclaimed/g1/w0/home/a", b"x" * 100_000)
    file = LEFT["files"][0]
    twice = [{**file, "size": 1}, {**file, "size": 1, "name": "home/b"}]
    desk.town.put_object(KINDS["unclaimed"][2], json.dumps({**LEFT, "files": twice}).encode())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=150_000))
    said = desk.run("fetch", "--unclaimed", "--output", str(desk.folder / "model"))
    assert (said.code, "has room for" in said.err) == (2, True), said.err
    assert not list(desk.folder.glob("model*"))
