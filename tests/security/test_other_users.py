"""Other users of the laptop: what they can put in tpuctl's way, and what it leaves open to them."""

import os
import shutil

import pytest

from orchestrator.app import support
from orchestrator.app.this_computer.state_folders import bug_prefix
from orchestrator.contract.bucket.object_names import FETCHED
from orchestrator.engine.bucket import fetch
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder
from orchestrator.scripts.uv_program import cache_folder, shared_folder
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


def test_what_tpuctl_remembers_lies_in_folders_of_its_user_alone(tmp_path):
    """Who may write above a deployment's folder may put in another, with hooks; whatever the umask."""
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud, job__target_steps=40)
        shutil.rmtree(user.state)
        before = os.umask(0)
        try:
            user.up()
            for words in ("status", "watch", "push"):
                user.run(*words.split())
        finally:
            os.umask(before)
        folders = [user.state, *(path for path in user.state.rglob("*") if path.is_dir())]
        assert len(folders) > 4
        assert [path for path in folders if path.stat().st_mode & 0o077] == []


def test_a_folder_that_cannot_be_made_says_why(tmp_path):
    """One that is there stays as it is."""
    (tmp_path / "open").mkdir(mode=0o755)
    private_folder(tmp_path / "open" / "a" / "b")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "open" / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            private_folder(path)


def test_a_folder_that_is_planted_while_fetch_looks_is_not_used(tmp_path, monkeypatch):
    """Between the look at its place and its making somebody else may make it, in a folder for all."""
    precious, part = tmp_path / "precious", tmp_path / "model.part"
    precious.write_text("all of it")

    def planted(*_):
        part.mkdir(mode=0o777)
        part.chmod(0o777)
        (part / FETCHED).symlink_to(precious)

    monkeypatch.setattr(fetch, "_check_room", planted)
    download = fetch.Download("a model", 1, (("object", "", "weights"),), {}, "")
    with pytest.raises(UsageError, match="is there already"):
        fetch.fetch(None, download, tmp_path / "model", lambda _: None)
    assert precious.read_text() == "all of it"


def test_no_report_of_a_bug_is_a_name_for_another_file(tmp_path, monkeypatch):
    """An archive for a maintainer would hold a file that somebody had linked into the folder for all."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "key").write_text("secret")
    ours = [tmp_path / f"{bug_prefix()}{number}.txt" for number in range(5)]
    ours[1].hardlink_to(tmp_path / "key")
    ours[2].symlink_to(tmp_path / "key")
    os.mkfifo(ours[3])
    ours[4].write_text("a report")
    # Another state folder of this user: what happened there is no part of this report.
    (tmp_path / "tpuctl-bug-00000000-5.txt").write_text("another report")
    assert support._bugs() == [ours[4]]


@pytest.mark.parametrize(("made", "retained"), [(0o755, 0o700), (0o775, 0o770)])
def test_no_other_user_holds_the_locks_of_the_shared_cache(tmp_path, monkeypatch, made, retained):
    """To lock a file it is enough to read it, and uv waits for minutes: on all machines."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = cache_folder()
    folder.mkdir(parents=True)
    folder.chmod(made)
    assert shared_folder() == folder
    assert folder.stat().st_mode & 0o777 == retained
