"""What a rehearsal takes from a log, and what it sees on the machines' disks."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.evidence import TAIL, _saved_since, last_output
from orchestrator.app.rehearsal.sandbox import Sandbox
from orchestrator.contract.formats.choose import format_of
from orchestrator.emulator.address import Address
from orchestrator.errors import LocalCloudError
from tests.agent.format_trees import h5

START = "--- TPU #1, worker 0, attempt 2: resume from step 5 (why) ---"
END = "--- attempt 2 failed: the job exited with status 1 ---"


def test_the_last_lines_are_those_of_the_last_start():
    """The agent's own lines are left out; a start before it is another attempt."""
    assert last_output(["old", END, START, "Traceback", "boom", END, "--- gave up: x ---"]) == (
        "Traceback", "boom",
    )  # fmt: skip


def test_no_more_lines_are_shown_than_a_screen_has_room_for():
    """The newest ones."""
    lines = [f"line {number}" for number in range(100)]
    assert last_output([START, *lines, END]) == tuple(lines[-TAIL:])
    assert last_output([START, END]) == ()


def write(folder: Path, name: str, content: bytes, at: float) -> None:
    """Write a file as if at *at*, in seconds since the epoch."""
    (folder / name).write_bytes(content)
    os.utime(folder / name, (at, at))


def test_the_step_of_a_backup_of_keras_is_read_in_it(tmp_path):
    """Its name is always the same; taking it for step 0 would say that a job counts its steps again."""
    write(tmp_path, "latest.weights.h5", h5(), 200.0)
    write(tmp_path, "training_metadata.json", b'{"epoch": 7, "batch": 0}', 200.0)
    assert _saved_since(100.0, tmp_path, format_of("keras", "COMPLETE")) == [7]
    assert _saved_since(300.0, tmp_path, format_of("keras", "COMPLETE")) == []


def test_a_file_that_tells_no_step_is_no_step(tmp_path):
    """Of flat files only those with a number are held against the step that was restored."""
    np.savez(tmp_path / "latest.npz", weights=np.zeros(4))
    os.utime(tmp_path / "latest.npz", (200.0, 200.0))
    assert _saved_since(100.0, tmp_path, format_of("auto", "COMPLETE")) == []
    np.savez(tmp_path / "model_40.npz", weights=np.zeros(4))
    assert 40 in _saved_since(100.0, tmp_path, format_of("auto", "COMPLETE"))


def test_what_was_restored_is_not_counted_as_saved_again(tmp_path):
    """Only what changed since the job's start on the machine shows how it counts."""
    for step, at in ((60, 50.0), (30, 200.0)):
        (tmp_path / f"step-{step}").mkdir()
        write(tmp_path / f"step-{step}", "COMPLETE", b"", at)
    assert _saved_since(100.0, tmp_path, format_of("marker", "COMPLETE")) == [30]


def test_a_rehearsal_waits_for_no_command_whose_cloud_is_gone(tmp_path, monkeypatch):
    """The command would go on asking for a quarter of an hour; it is ended, and the cause is said."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    sandbox = Sandbox(tmp_path, tmp_path, Reporter())
    sandbox.address = Address(1, 1, "http://127.0.0.1:1", 1, "local-project", "process")
    started = []

    def start(*_):
        started.append(subprocess.Popen(["sleep", "600"]))
        return started[0]

    monkeypatch.setattr(sandbox, "start", start)
    monkeypatch.setattr("orchestrator.app.rehearsal.sandbox.POLL_SECONDS", 0.05)
    with pytest.raises(LocalCloudError, match="is gone"):
        sandbox.call("up")
    assert started[0].poll() is not None
