"""tpuctl checkpoints fetch, against a real bucket: the whole checkpoint, as it was saved, or nothing."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli.views.checkpoints import show_fetched
from orchestrator.contract.bucket.manifest import file_name, manifest_name
from orchestrator.contract.bucket.object_names import FETCHED
from orchestrator.engine.bucket.fetch import Download
from orchestrator.errors import NotFoundError, TransientError
from orchestrator.google import objects
from tests.cli.cli_kit import document, here
from tests.cli.test_checkpoints import FILE, bucket

__all__ = ["bucket"]


def tree(folder):
    """Return the files below a fetched folder by their names there, but for the note that it was fetched."""
    assert (folder / FETCHED).is_file()
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if name != FETCHED}


def test_the_newest_complete_one_comes_and_nothing_is_overwritten(bucket, capsys, tmp_path):
    """Step 30 is torn, so it is 20; another step by its number; no folder is written a second time."""
    code, out, _ = here(capsys, "checkpoints", "fetch", "--json")
    found = document(out)
    assert (code, found["step"], found["files_count"], found["verified"]) == (0, 20, 1, True)
    assert tree(tmp_path / "mine-step-20") == {"weights": b"w" * 4000}

    code, _, err = here(capsys, "checkpoints", "fetch")
    assert code == 2
    assert ("TPU-114" in err, "copying" in err) == (True, False)
    saved = json.loads((tmp_path / "mine-step-20" / FETCHED).read_text())["saved_at"]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(saved))
    assert f"mine-step-20 holds this already: step 20, saved {when}" in " ".join(err.split())
    code, _, err = here(capsys, "checkpoints", "fetch", "--step", "10", "-o", str(tmp_path / "mine-step-20"))
    assert (code, "TPU-114" in err, "holds this already" in err) == (2, True, False), "it is of another step"
    (tmp_path / "mine-step-20" / "weights").unlink()
    code, _, err = here(capsys, "checkpoints", "fetch")
    assert (code, "TPU-114" in err, "holds this already" in err) == (2, True, False), (
        "it is not whole any more"
    )
    code, _, err = here(capsys, "checkpoints", "fetch", "--step", "10", "-o", str(tmp_path / "deep" / "ten"))
    assert code == 0
    assert "sha256 of every file verified" in err
    assert tree(tmp_path / "deep" / "ten") == {"weights": b"w" * 4000}
    code, _, err = here(capsys, "checkpoints", "fetch", "--step", "30")
    assert (code, "there is no complete checkpoint of step 30" in err) == (1, True)


def test_bytes_that_are_not_those_saved_leave_nothing(bucket, capsys, tmp_path):
    """Neither the folder nor its beginnings."""
    bucket.write(file_name(20, 1, 0, "weights"), b"x" * 4000)
    code, _, err = here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))
    assert code == 1
    assert "TPU-403" in err
    assert "another sha256" in err
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("model")]


def test_what_an_interrupt_has_fetched_is_used_and_what_is_foreign_goes(
    bucket, capsys, tmp_path, monkeypatch
):
    """A right file is not asked for again; a half one is; one of another step goes."""
    part = tmp_path / "model.part"
    part.mkdir()
    (part / FETCHED).touch()
    (part / "weights").write_bytes(b"w" * 4000)
    (part / "other").write_bytes(b"of another step")
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "download", lambda *_: asked.append(1))
        assert here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))[0] == 0
    assert (asked, tree(tmp_path / "model")) == ([], {"weights": b"w" * 4000})

    half = tmp_path / "again.part"
    half.mkdir()
    (half / FETCHED).touch()
    (half / "weights").write_bytes(b"w" * 40)
    assert here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "again"))[0] == 0
    assert tree(tmp_path / "again") == {"weights": b"w" * 4000}


def test_a_foreign_folder_is_not_touched(bucket, capsys, tmp_path):
    """It has the name of an unfinished copy, and not its mark."""
    theirs = tmp_path / "model.part"
    theirs.mkdir()
    (theirs / "thesis").write_text("all of it")
    code, _, err = here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))
    assert (code, "TPU-114" in err, "model.part" in err) == (2, True, True)
    assert [(path.name, path.read_text()) for path in theirs.iterdir()] == [("thesis", "all of it")]


@pytest.mark.parametrize("planted", ["link", "hard link", "link for the folder", "open to all"])
def test_a_planted_link_is_never_followed(bucket, capsys, tmp_path, planted):
    """A folder with the name and the mark of an unfinished copy, where a file leads to one of the user's."""
    precious = tmp_path / "precious"
    precious.write_text("all of it")
    part = tmp_path / "model.part"
    if planted == "link for the folder":
        (tmp_path / "else").mkdir()
        (tmp_path / "else" / FETCHED).touch()
        part.symlink_to(tmp_path / "else")
    else:
        part.mkdir()
        (part / FETCHED).touch()
    if planted == "link":
        (part / "weights").symlink_to(precious)
    if planted == "hard link":
        (part / "weights").hardlink_to(precious)
    if planted == "open to all":
        part.chmod(0o777)
    code, _, err = here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))
    assert (code, "TPU-114" in err, "model.part" in err) == (2, True, True)
    assert precious.read_text() == "all of it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_an_unfinished_copy_of_another_user_is_not_gone_on_with(bucket, capsys, tmp_path):
    """He could put anything there meanwhile."""
    part = tmp_path / "model.part"
    part.mkdir()
    (part / FETCHED).touch()
    os.chown(part, 4321, 4321)
    assert here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))[0] == 2


def test_a_checkpoint_that_the_job_wrote_itself(bucket, capsys, tmp_path):
    """Orbax: names below the step's folder stay, one that stands for a folder is no file, none leads out."""
    (tmp_path / "tpuctl.yaml").write_text(
        FILE.replace('"true"', '"true", checkpoint: {format: orbax, dir: bucket}')
    )
    for name in ("commit_success.txt", "state/array", "state/"):
        bucket.write(f"checkpoints/77/{name}", name.encode() * (not name.endswith("/")))
    code, _, err = here(capsys, "checkpoints", "fetch")
    assert code == 0
    assert "no sha256 was recorded, so none was verified" in err
    found = tree(tmp_path / "mine-step-77")
    assert found == {"commit_success.txt": b"commit_success.txt", "state/array": b"state/array"}

    bucket.write("checkpoints/77/../../../evil", b"evil")
    code, _, err = here(capsys, "checkpoints", "fetch", "-o", "other")
    assert (code, "is not a file's" in err) == (2, True)
    assert not list(tmp_path.glob("other*"))


def test_a_disk_without_room_is_noticed_first(bucket, capsys, monkeypatch):
    """Nothing is begun."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    code, _, err = here(capsys, "checkpoints", "fetch")
    assert (code, "has room for" in err) == (2, True)


def test_a_slice_has_a_folder_for_each_worker(bucket, capsys, tmp_path):
    """Both workers may have a file of one name."""
    import hashlib

    from orchestrator.contract.bucket.manifest import Manifest, StoredFile

    for worker in (0, 1):
        data = b"part %d" % worker
        bucket.write(file_name(40, 2, worker, "shard"), data)
        file = StoredFile("shard", len(data), hashlib.sha256(data).hexdigest())
        manifest = Manifest(40, 2, worker, 2, 1, "step-40", (file,), 1.0)
        bucket.write(manifest_name(40, 2, worker), manifest.text().encode())
    assert here(capsys, "checkpoints", "fetch")[0] == 0
    assert tree(tmp_path / "mine-step-40") == {"w0/shard": b"part 0", "w1/shard": b"part 1"}


def test_a_large_file_comes_in_several_streams(bucket, capsys, tmp_path, monkeypatch):
    """All of its bytes in their places, whatever the order in which they come."""
    data = os.urandom(10_001)
    bucket.write("big", data)
    monkeypatch.setattr("orchestrator.google.objects.RANGE", 1000)
    sizes = []
    digest = bucket.download("big", tmp_path / "copy", sizes.append, 4)
    assert (tmp_path / "copy").read_bytes() == data
    assert (digest, sizes) == (hashlib.sha256(data).hexdigest(), [10_001])
    assert here(capsys, "checkpoints", "fetch", "-o", str(tmp_path / "model"))[0] == 0
    assert tree(tmp_path / "model") == {"weights": b"w" * 4000}


@pytest.mark.parametrize("how", ["replaced", "damaged"])
def test_streams_bring_one_generation_as_it_is_or_nothing(bucket, tmp_path, monkeypatch, how):
    """The object is replaced by one of the same size, or a range arrives with other bytes than it has."""
    bucket.write("big", os.urandom(10_001))
    monkeypatch.setattr("orchestrator.google.objects.RANGE", 1000)
    write, count = objects.LimitedBuffer.write, []

    def met(self, data):
        count.append(data)
        if len(count) == 5 and how == "replaced":
            bucket.write("big", os.urandom(10_001))
        return write(self, bytes(len(data)) if len(count) == 5 and how == "damaged" else data)

    monkeypatch.setattr(objects.LimitedBuffer, "write", met)
    with pytest.raises(NotFoundError if how == "replaced" else TransientError):
        bucket.download("big", tmp_path / "copy", None, 2)


@pytest.mark.parametrize(("what", "several", "verb"), [("step 5", False, "is"), ("the files", True, "are")])
def test_what_was_copied_is_said_with_the_right_verb(what, several, verb, capsys):
    """A checkpoint is one thing, and its only file is named; files that a TPU left behind are many."""
    download = Download(what, 1, (("object", "", "name"),), {}, "again", several)
    show_fetched(SimpleNamespace(download=download, folder=Path("here")), as_json=False)
    assert capsys.readouterr().err.startswith(f"{what} {verb} in {'here' if several else 'here/name'}: ")
