"""Modules in the current folder that are named like Python's own, or like ours: no program of ours takes them."""

import os
import subprocess
from unittest import mock

import pytest

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.sandbox import Sandbox
from orchestrator.emulator.machines import start_module
from orchestrator.emulator.machines.apt_standin import install_apt
from orchestrator.emulator.machines.machine_programs import install_programs

SHADOWS = ("random", "json", "runpy", "platform", "click", "orchestrator", "sitecustomize")


@pytest.fixture
def project(tmp_path):
    """Return the folder of a project with such modules; each leaves a file when it is imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    yield folder
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()


def test_no_module_of_the_project_is_imported_by_a_rehearsal(project, tmp_path, capfd):
    """Its commands run in the folder of the project, as the user would run them."""
    with mock.patch.dict(os.environ):
        sandbox = Sandbox(tmp_path / "sandbox", project, Reporter())
        assert sandbox.call("--version") == 0
        sandbox.run_beside("local", "status")
        sandbox.clear()
    assert "tpuctl, version" in capfd.readouterr().out


def test_no_module_of_a_job_is_imported_by_what_stands_in_for_programs(project, tmp_path, monkeypatch):
    """A machine's gcloud and apt are called from wherever the job is."""
    monkeypatch.setattr("orchestrator.emulator.machines.machine_programs.shutil.which", lambda *_, **__: None)
    programs = tmp_path / "bin"
    install_programs(programs)
    install_apt(programs, tmp_path / "machine")
    for words in (["gcloud", "--help"], ["apt-config", "dump"]):
        done = subprocess.run(
            [programs / words[0], *words[1:]], cwd=project, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, done.stderr


def test_words_and_status_of_a_module_come_through(tmp_path):
    """Spaces, quotes and empty words too."""
    (tmp_path / "shown.py").write_text("import sys; print(sys.argv[1:], __name__); sys.exit(7)")
    done = subprocess.run(
        start_module.command("shown", "a b", "", "'\""), env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "['a b', '', '\\'\"'] __main__\n"
    assert done.returncode == 7
