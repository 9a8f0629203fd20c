"""What an error of the operating system means for a file of this computer: its disk's trouble, or a bug of ours."""

import errno
import os
from pathlib import Path

import pytest

from orchestrator.cli.main import run
from orchestrator.engine.records.atomic_files import append_synced, write_private
from orchestrator.errors import DiskError, disk_error

PATH = Path("/somewhere/record.json")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_without_room_is_reported_as_that(number):
    """Whoever wrote: an error of `write` names no file."""
    reported = disk_error(OSError(number, os.strerror(number)))
    assert "cannot be written" in reported.message
    assert os.strerror(number).lower() in reported.message
    assert reported.hint
    assert reported.changed


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EIO])
def test_a_file_out_of_reach_is_named(number):
    """Such as one that a run with sudo left behind; it may have been read only."""
    assert f"{PATH} cannot be read or written" in disk_error(OSError(number, "no", str(PATH))).message
    assert disk_error(OSError(number, "no")) is None, "a permission without a file may be anything"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ENOENT, None])
def test_other_errors_stay_what_they_are(number):
    """A broken connection is no full disk, and a file that should be there is a bug."""
    assert disk_error(OSError(number, "no", str(PATH))) is None


@pytest.mark.parametrize("write", [write_private, append_synced])
def test_a_write_that_cannot_be_names_the_file(write, tmp_path):
    """A file where a folder should be."""
    (tmp_path / "state").write_text("")
    with pytest.raises(DiskError, match=str(tmp_path / "state" / "record.json")):
        write(tmp_path / "state" / "record.json", b"{}")


def test_a_command_says_it_in_four_lines(tmp_path, monkeypatch, capsys):
    """No word of a bug: what, what was changed, what to do, where more is said."""
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["init", str(tmp_path / "state" / "app")]) == 1
    said = capsys.readouterr().err
    assert "TPU-450" in said
    assert "bug" not in said
    assert said.count("\n") == 4
