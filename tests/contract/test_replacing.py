"""A file is written whole or not at all, and what another process has made first stays where that is asked for."""

import fcntl
import os
import signal
import stat
import subprocess
import sys

import pytest

from orchestrator.contract.replacing import replacing
from orchestrator.private_folders import private_file


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    """Whatever the block raises."""
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("no bytes")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "old")]


@pytest.mark.parametrize("first", [True, False], ids=["none before", "one before"])
def test_the_first_file_stays_where_that_is_asked_for(first, tmp_path):
    """Two processes that make a key at once use the same one."""
    path = tmp_path / "key"
    with replacing(path, 0o600, keeps=True) as file:
        file.write(b"mine")
        if not first:
            path.write_bytes(b"theirs")
    assert path.read_bytes() == (b"mine" if first else b"theirs")
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_a_killed_writer_is_deleted_by_the_next_one_and_that_of_a_live_one_stays(tmp_path):
    """Also a writer of another thread; a file with another name is not ours, nor is one of another file."""
    path, others = tmp_path / "file", [tmp_path / ".file.tmp", tmp_path / ".other.0123abcd.tmp"]
    for one in others:
        one.touch()
    script = "import os, pathlib, sys; from orchestrator.contract.replacing import replacing\n"
    script += "with replacing(pathlib.Path(sys.argv[1])) as file: os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert (killed.returncode, len(list(tmp_path.glob(".file.*.tmp")))) == (-signal.SIGKILL, 1)
    with replacing(path) as slow:
        slow.write(b"slow")
        with replacing(path) as quick:
            quick.write(b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_a_part_that_another_writer_takes_for_a_leftover_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    """Between its creation and its lock it looks like one."""
    path, lock, deleted = tmp_path / "file", fcntl.flock, []

    def late(handle, how):
        if not deleted:
            deleted.extend(tmp_path.glob(".file.*.tmp"))
            deleted[0].unlink()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with replacing(path) as file:
        file.write(b"new")
    assert (path.read_bytes(), len(deleted), list(tmp_path.iterdir())) == (b"new", 1, [path])


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_is_synced_before_it_gets_its_name_unless_that_is_waived(synced, tmp_path, monkeypatch):
    """The file, then its folder's entry."""
    path, syncs = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda _: syncs.append(path.exists()))
    with replacing(path, synced=synced) as file:
        file.write(b"x")
    assert syncs == ([False, True] if synced else [])
    assert path.read_bytes() == b"x"


def test_a_private_file_is_its_owners_whatever_was_there(tmp_path):
    """The mode of an older file does not stay."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    private_file(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
