"""A bundle depends on the content of its source only, holds what patterns allow, refuses what cannot work."""

import hashlib
import os
import socket
import tarfile
import time
from pathlib import Path

import pytest

from orchestrator.app.source.bundle import build
from orchestrator.app.source.source_files import source_files
from orchestrator.contract.bucket.object_names import FETCHED
from orchestrator.errors import UsageError


@pytest.fixture
def source(tmp_path):
    """Make a source folder with a script and a package."""
    folder = tmp_path / "source"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("print('train')")
    (folder / "pkg" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "pkg" / "run.sh").chmod(0o755)
    return folder


def names(bundle):
    """List what a bundle holds, in order."""
    with tarfile.open(bundle.path) as tar:
        return [member.name for member in tar]


def test_the_same_content_gives_the_same_bytes(source, tmp_path):
    """Times, owners, umask, folder name and order of creation do not matter."""
    first = build(source, tmp_path / "out")
    twin = tmp_path / "twin"
    (twin / "pkg").mkdir(parents=True)
    (twin / "pkg" / "run.sh").write_text("#!/bin/sh\n")
    (twin / "pkg" / "run.sh").chmod(0o711)
    (twin / "train.py").write_text("print('train')")
    (twin / "train.py").chmod(0o600)
    os.utime(twin / "train.py", (1, 1))
    second = build(twin, tmp_path / "out")
    assert first.digest == second.digest == hashlib.sha256(second.path.read_bytes()).hexdigest()
    assert (first.files, first.bytes) == (2, 24)
    assert names(first) == ["pkg", "pkg/run.sh", "train.py"]
    with tarfile.open(first.path) as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in tar} == {(0, 0, 0, "")}
        assert [oct(m.mode) for m in tar] == ["0o755", "0o755", "0o644"]


def test_changed_content_gives_another_digest(source, tmp_path):
    """Also when size and time of modification stay the same."""
    _age(source)
    first = build(source, tmp_path / "out")
    status = (source / "train.py").stat()
    (source / "train.py").write_text("print('TRAIN')")
    os.utime(source / "train.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert build(source, tmp_path / "out").digest != first.digest


def test_a_folder_without_changes_is_not_packed_again(source, tmp_path, monkeypatch):
    """The second build only looks at the folder; a lost bundle is packed again."""
    from orchestrator.app.source import bundle as module

    monkeypatch.setattr(module, "_SETTLED", -60.0)  # what was written just now is settled already
    first = build(source, tmp_path / "out")
    packed = []
    original = module._pack
    monkeypatch.setattr(module, "_pack", lambda *args: packed.append(1) or original(*args))
    assert build(source, tmp_path / "out") == first
    assert packed == []
    first.path.unlink()
    assert build(source, tmp_path / "out") == first
    assert packed == [1]


def test_a_folder_changed_a_moment_ago_is_not_remembered(source, tmp_path):
    """A file may change twice within one tick of its time stamp."""
    (source / "train.py").write_text("print('fresh')")
    build(source, tmp_path / "out")
    assert not (tmp_path / "out" / "bundle.json").exists()


def test_ignore_files_are_respected_also_nested_ones(source, tmp_path):
    """The nearest pattern decides, .tpuctlignore after .gitignore; some folders never travel."""
    files = [
        "data/big.bin", "pkg/a.log", "pkg/keep.log", "pkg/out/x", "b.log", ".git/HEAD", "pkg/__pycache__/m",
        ".venv/bin/python", "secrets.env", "only/root.txt", "pkg/only/root.txt", ".tpuctl-bundle",
    ]  # fmt: skip
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    (source / ".gitignore").write_text("data/\n*.log\nsecrets.env\n/only\n")
    (source / ".tpuctlignore").write_text("!secrets.env\n")
    (source / "pkg" / ".gitignore").write_text("!keep.log\nout\n")
    retained = [name for name in names(build(source, tmp_path / "out")) if "." in Path(name).name]
    assert retained == [
        ".gitignore", ".tpuctlignore", "pkg/.gitignore", "pkg/keep.log", "pkg/only/root.txt", "pkg/run.sh",
        "secrets.env", "train.py",
    ]  # fmt: skip


def test_what_tpuctl_writes_beside_the_file_is_no_new_code(source, tmp_path):
    """A report, or an archive for a bug report, restarts no job; a pattern of the user wins; deeper it is sent."""
    before = build(source, tmp_path / "out").digest
    for name in ("mine-report.html", "tpuctl-support-20260101-000000.zip"):
        (source / name).write_text("x")
    assert build(source, tmp_path / "out").digest == before
    (source / "pkg" / "cover-report.html").write_text("x")
    (source / ".tpuctlignore").write_text("!/mine-report.html\n")
    retained = set(names(build(source, tmp_path / "out")))
    assert {"mine-report.html", "pkg/cover-report.html"} <= retained
    assert "tpuctl-support-20260101-000000.zip" not in retained


KEYS = (
    ".env", ".env.local", ".ssh/id_rsa", ".aws/credentials", ".config/gcloud/credentials.db", "deep/tls.pem",
    "id_ed25519", "id_ed25519.pub", ".netrc",
)  # fmt: skip


def test_keys_are_excluded_unless_a_pattern_of_the_user_asks_for_them(source, tmp_path):
    """By their names, at any depth; a look names them. What only has a similar name is code."""
    for name in (*KEYS, ".env.example", "id_map.json", "environment.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    sent = set(names(build(source, tmp_path / "out")))
    assert not sent & set(KEYS)
    assert {".env.example", "id_map.json", "environment.py"} <= sent
    excluded = {one.path for one in source_files(source).excluded}
    assert {".env", ".ssh/", ".aws/", ".config/gcloud/", "deep/tls.pem", "id_ed25519"} <= excluded

    (source / ".tpuctlignore").write_text("!.env\n!deep/tls.pem\n!.ssh/\n")
    sent = set(names(build(source, tmp_path / "out")))
    assert sent & set(KEYS) == {".env", "deep/tls.pem", ".ssh/id_rsa"}


def test_a_file_that_holds_a_key_is_refused_by_name(source, tmp_path):
    """Nothing is packed; a pattern of the user sends it all the same."""
    (source / "pkg" / "login.py").write_text("login('hf_" + "aB3" * 11 + "')")
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out")
    assert caught.value.code == "TPU-142"
    assert "pkg/login.py (a Hugging Face token)" in caught.value.message
    assert "aB3" not in f"{caught.value.message}{caught.value.hint}"
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True
    (source / ".tpuctlignore").write_text("!pkg/login.py\n")
    assert "pkg/login.py" in names(build(source, tmp_path / "out"))


def test_a_comment_in_the_deployment_file_is_no_new_code(source, tmp_path):
    """Its settings reach the machines by themselves; one that a job reads is sent by a pattern of the user."""
    (source / "tpuctl.yaml").write_text("name: x\n")
    before = build(source, tmp_path / "out").digest
    (source / "tpuctl.yaml").write_text("name: x  # mine\n")
    assert build(source, tmp_path / "out").digest == before
    (source / ".tpuctlignore").write_text("!/tpuctl.yaml\n")
    assert "tpuctl.yaml" in names(build(source, tmp_path / "out"))


def test_the_hint_about_a_key_allows_a_file_with_a_bracket_in_its_name(source, tmp_path):
    """The pattern that it offers sends the file."""
    (source / "a (b).txt").write_text("login('hf_" + "aB3" * 11 + "')")
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out")
    assert "a (b).txt (a Hugging Face token)" in caught.value.message
    pattern = caught.value.hint.partition("with a line ")[2]
    assert pattern == "!a (b).txt"
    (source / ".tpuctlignore").write_text(f"{pattern}\n")
    assert "a (b).txt" in names(build(source, tmp_path / "out"))


def test_what_is_excluded_is_named_with_its_pattern_and_size(source, tmp_path):
    """A whole folder counts as one; empty lines and comments in front do not move the line's number."""
    (source / "data").mkdir()
    for name in ("a.bin", "b.bin"):
        (source / "data" / name).write_bytes(b"x" * 500)
    (source / "pkg" / "cache").mkdir()
    (source / "pkg" / "cache" / "x").write_bytes(b"x" * 70)
    (source / ".gitignore").write_text("# data\n\n*.bin\n")
    (source / "pkg" / ".tpuctlignore").write_text("\ncache\n")
    found = {one.path: (one.pattern, one.files, one.size) for one in source_files(source).excluded}
    assert found == {
        "data/a.bin": (".gitignore:3", 1, 500),
        "data/b.bin": (".gitignore:3", 1, 500),
        "pkg/cache/": ("pkg/.tpuctlignore:2", 1, 70),
    }


def test_what_was_fetched_is_no_new_code(source, tmp_path):
    """A model beside the code restarts no job, whatever its folder's name, as long as the note is in it."""
    before = build(source, tmp_path / "out").digest
    model = source / "model"
    model.mkdir()
    (model / "weights").write_text("w")
    (model / FETCHED).write_text("{}")
    assert build(source, tmp_path / "out").digest == before
    (model / FETCHED).unlink()
    assert build(source, tmp_path / "out").digest != before


def test_links_inside_travel_as_relative_connections(source, tmp_path):
    """An absolute path of this computer becomes one that works there."""
    (source / "pkg" / "absolute").symlink_to(source / "train.py")
    (source / "pkg" / "relative").symlink_to("../train.py")
    (source / "folder").symlink_to("pkg")
    with tarfile.open(build(source, tmp_path / "out").path) as tar:
        found = {member.name: member.linkname for member in tar if member.issym()}
    assert found == {"pkg/absolute": "../train.py", "pkg/relative": "../train.py", "folder": "pkg"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "pkg/../../outside"])
def test_a_link_out_of_the_folder_is_refused_by_name(target, source, tmp_path):
    """The error names the link and where it points; ignoring the link helps."""
    (source / "leak").symlink_to(target)
    with pytest.raises(UsageError, match="leak") as caught:
        build(source, tmp_path / "out")
    assert target in caught.value.message
    (source / ".tpuctlignore").write_text("leak\n")
    assert "leak" not in names(build(source, tmp_path / "out"))


def test_a_chain_of_links_out_of_the_folder_is_refused(source, tmp_path):
    """It is the end of the chain that counts."""
    (source / "hidden").symlink_to("/etc")
    (source / ".gitignore").write_text("hidden\n")
    (source / "chain").symlink_to("hidden/passwd")
    with pytest.raises(UsageError, match="chain"):
        build(source, tmp_path / "out")


def test_a_folder_over_the_limit_is_refused_before_anything_is_read(source, tmp_path):
    """64 gigabytes (sparse) take no time; the three largest entries are shown."""
    for name, size in (("data/a.bin", 1 << 36), ("model.bin", 3 << 20), ("small.bin", 1 << 20), ("tiny", 10)):
        (source / name).parent.mkdir(exist_ok=True)
        with (source / name).open("wb") as file:
            file.truncate(size)
    start = time.monotonic()
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out")
    assert caught.value.message.endswith("Largest: data/ 68,719.5 MB, model.bin 3.1 MB, small.bin 1.0 MB")
    assert time.monotonic() - start < 60
    assert ".tpuctlignore" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_special_files_are_refused_by_name(source, tmp_path):
    """A pipe would block us for ever, a socket cannot travel."""
    os.mkfifo(source / "queue")
    with pytest.raises(UsageError, match="queue"):
        build(source, tmp_path / "out")
    (source / "queue").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(source / "s"))
        with pytest.raises(UsageError, match="socket"):
            build(source, tmp_path / "out")


def test_all_that_cannot_be_sent_is_named_in_one_round(source, tmp_path):
    """A pipe, a link to outside and a key: each with what to do; corrected, the folder is sent."""
    os.mkfifo(source / "pkg" / "queue")
    (source / "leak").symlink_to("/etc/passwd")
    key = "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n"
    (source / "login.json").write_text(key)
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out")
    first, *lines = caught.value.message.splitlines()
    assert first.endswith("for 3 reasons:")
    assert [
        [
            part
            for part in ("leak", "pkg/queue", "login.json", "; copy what", "; remove it", "tpuctl secret set")
            if part in line
        ]
        for line in lines
    ] == [["leak", "; copy what"], ["pkg/queue", "; remove it"], ["login.json", "tpuctl secret set"]]
    (source / ".tpuctlignore").write_text("leak\nqueue\nlogin.json\n")
    assert "train.py" in names(build(source, tmp_path / "out"))


def test_an_unreadable_file_is_refused_by_name(source, tmp_path, monkeypatch):
    """Root reads everything, so the answer of the system is replaced here."""
    monkeypatch.setattr(os, "access", lambda path, mode: "train" not in str(path))
    with pytest.raises(UsageError, match=r"train\.py cannot be read"):
        build(source, tmp_path / "out")


@pytest.mark.parametrize("change", ["grow", "shrink", "vanish"])
def test_a_file_that_changes_while_it_is_read_is_refused(change, source, tmp_path, monkeypatch):
    """A torn file never gets a digest."""
    from orchestrator.app.source import bundle as module

    def sent_files(*args):
        found = original(*args)
        file = source / "train.py"
        if change == "vanish":
            file.unlink()
        else:
            file.write_text("x" * 99 if change == "grow" else "")
        return found

    original = module.sent_files
    monkeypatch.setattr(module, "sent_files", sent_files)
    with pytest.raises(UsageError, match=r"train\.py .* changed"):
        build(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_names_of_any_bytes_travel(source, tmp_path):
    """Spaces, quotes, Hangul, newlines and bytes that are no text."""
    odd = [b"a b'\"$(x)", "한글.py".encode(), b"new\nline", b"\xff\xfe", b"-n", b"n" * 200]
    for name in odd:
        (source / os.fsdecode(name)).write_bytes(b"1")
    found = names(build(source, tmp_path / "out"))
    assert {os.fsencode(name) for name in found} >= set(odd)


@pytest.mark.parametrize("name", ["missing", "source/train.py"])
def test_a_source_that_is_no_folder_is_refused(name, source, tmp_path):
    """The error says which folder and where it is set."""
    with pytest.raises(UsageError, match="is not a folder") as caught:
        build(tmp_path / name, tmp_path / "out")
    assert "job.source" in caught.value.hint


def test_only_the_newest_bundles_are_retained(source, tmp_path):
    """The state folder does not grow for ever."""
    for number in range(6):
        (source / "train.py").write_text(str(number))
        last = build(source, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.tar.gz"))) == 3
    assert last.path.exists()


def _age(folder):
    """Set times far enough back; the time of the inode's change stays now."""
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))


def test_what_tpuctl_writes_beside_the_code_is_no_code(tmp_path):
    """A table of results that is written into the folder changes nothing of what is sent."""
    source, out = tmp_path / "s", tmp_path / "o"
    source.mkdir()
    (source / "train.py").write_text("x")
    before = build(source, out, written=["/results.csv"])
    (source / "results.csv").write_text("1")
    assert build(source, out, written=["/results.csv"]).digest == before.digest
    assert build(source, out).digest != before.digest
