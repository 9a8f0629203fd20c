"""What lies between two tasks on one machine: modules are compiled once, all jobs are looked through at once."""

import os
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.agent import zip_main
from orchestrator.agent.attempt.run_attempt import AttemptRunner
from orchestrator.agent.fleet import task
from orchestrator.agent.layout import Layout
from orchestrator.agent.machine import processes
from orchestrator.agent.side_threads import SideThread
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent, HeartbeatWriter, heartbeat_name
from orchestrator.scripts.agent_zipapp import build
from tests.agent.agent_lab import AgentLab
from tests.agent.test_storage import ClockWithNews, bucket_of, settings_of


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Give an agent.pyz, as on a machine."""
    build(tmp_path / "agent.pyz")
    return tmp_path / "agent.pyz"


def copies(archive: Path) -> list[Path]:
    """Return the unpacked copies beside an archive."""
    return sorted(archive.parent.glob(f"{zip_main.PREFIX}*"))


def test_the_agent_compiles_its_modules_once(archive: Path) -> None:
    """From the archive alone Python does it at every start, which was half of a start's computing."""
    for _ in range(2):
        subprocess.run([sys.executable, "-E", archive, "task", "--help"], check=True, capture_output=True)
    (copy,) = copies(archive)
    compiled = {
        one.name.partition(".")[0] for one in (copy / "orchestrator/agent/fleet/__pycache__").iterdir()
    }
    assert {"task", "task_part"} <= compiled
    names = zipfile.ZipFile(archive).namelist()
    assert [(copy / name).read_bytes() == zipfile.ZipFile(archive).read(name) for name in names] == [
        True
    ] * len(names)


def test_another_agent_has_another_copy_and_those_of_earlier_boots_go(archive: Path) -> None:
    """An agent of before a push still starts programs from its copy; a power cut may have spoiled older ones."""
    first = zip_main.unpacked(archive)
    archive.with_name(f"{zip_main.PREFIX}00000000-0123456789abcdef").mkdir()
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr("orchestrator/agent/more.py", "")
    second = zip_main.unpacked(archive)
    assert [str(one) for one in copies(archive)] == sorted({first, second})
    assert Path(second, "orchestrator/agent/more.py").exists()
    assert zip_main.unpacked(archive) == second


def test_two_first_starts_at_once_share_a_copy(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one takes what the earlier one has made."""
    extract = zipfile.ZipFile.extractall

    def slow(held: zipfile.ZipFile, folder: str) -> None:
        monkeypatch.setattr(zipfile.ZipFile, "extractall", extract)
        zip_main.unpacked(archive)
        extract(held, folder)

    monkeypatch.setattr(zipfile.ZipFile, "extractall", slow)
    assert [zip_main.unpacked(archive)] == [str(one) for one in copies(archive)]


def test_the_archive_serves_where_no_copy_can_be_made(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, and a folder that is not ours."""

    def full(held: zipfile.ZipFile, folder: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    assert (zip_main.unpacked(archive), copies(archive)) == ("", [])
    monkeypatch.undo()
    copy = Path(zip_main.unpacked(archive))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert copy.is_dir()
    assert zip_main.unpacked(archive) == ""


def test_processes_of_all_earlier_jobs_are_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other took a tenth of a second for each job that a machine ever had."""
    roots, naps, started = [tmp_path / "tasks" / name for name in ("a", "b", "c", "d")], [], []
    for root in roots:
        root.mkdir(parents=True)
    (tmp_path / "tasks" / "lock").touch()
    for root in roots[:2]:
        environ = {**os.environ, "TPUCTL_ROOT": str(root), "TPUCTL_JOB": "x/1/1"}
        started.append(subprocess.Popen(["sleep", "60"], env=environ))
    nap = time.sleep
    monkeypatch.setattr(processes.time, "sleep", lambda seconds: naps.append(seconds) or nap(seconds))
    task._end_the_others(Layout(roots[3]))
    assert [one.wait(10) for one in started] == [-9, -9]
    assert len(naps) <= processes.CHECKS + 1


def test_a_step_of_the_start_that_is_over_is_not_waited_for() -> None:
    """There are three of them, and each took a tenth of a second."""
    checks, over = [], threading.Event()
    runner = AttemptRunner.__new__(AttemptRunner)
    runner._context = SimpleNamespace(
        end_requests=SimpleNamespace(check=lambda: (checks.append(1), over.set()))
    )
    assert runner._wait(SideThread("step", lambda: over.wait(10) and 7)) == 7
    assert checks


def test_the_step_that_reaches_the_target_is_reported_with_the_end(lab: AgentLab) -> None:
    """A report of its own would keep the last one back for a second, and the next task with it."""
    settings = replace(settings_of(lab), target=20)

    def ends() -> None:
        heartbeat.set(phase="done")
        reporter.report()

    clock = ClockWithNews(ends)
    heartbeat = HeartbeatContent(settings, clock)
    reporter = HeartbeatWriter(settings, bucket_of(lab), heartbeat, clock)
    heartbeat.set(phase="run", committed_step=20)
    reporter.report()
    assert clock.waits[0] == min(1.0, settings.heartbeat_interval)
    assert [one for one in lab.writes if "heartbeat" in one] == [f"POST {heartbeat_name(1, 0)}"]
    assert lab.json(heartbeat_name(1, 0))["phase"] == "done"
