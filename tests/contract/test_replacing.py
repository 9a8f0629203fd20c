"""A file is written whole or not at all, and what another process has made first stays where that is asked for."""

import os
import stat

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
