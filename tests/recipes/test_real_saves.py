"""Saves of the real frameworks: `auto` recognises each, commits it, and brings it back byte for byte."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.agreement.attempts import next_attempt
from tests.agent.agent_lab import running_lab
from tests.formats.table import FormatLab
from tests.recipes.kit import VENVS

REAL = Path(__file__).parents[1] / "formats" / "real"
VENV = Path(__file__).parents[2] / "examples" / "jax-lm" / "venv.sh"
STEPS = {"hf": 4, "hf-lora": 4, "keras": 2, "files-keras": 2, "files-h5": 2, "orbax-keras": 1,
         "files-lightning": 8, "files-lightning-logs": 8}  # fmt: skip


@pytest.fixture(scope="module")
def saves(tmp_path_factory):
    """Run the frameworks once; TPUCTL_FORMATS_PYTHON may name a Python that has them."""
    folder = tmp_path_factory.mktemp("real")
    python = os.environ.get("TPUCTL_FORMATS_PYTHON")
    shutil.copy(REAL / "requirements.txt", folder)
    shutil.copy(VENV, folder)
    words = [python] if python else ["sh", str(folder / "venv.sh"), "python"]
    environ = {**os.environ, "TPUCTL_VENV_CACHE": str(VENVS)}
    done = subprocess.run(
        [*words, str(REAL / "saves.py"), str(folder / "out")],
        env=environ, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "out"


def test_each_framework_is_recognised_committed_and_restored(saves, tmp_path):
    """The name of a folder begins with the format that it must be taken for."""
    folders = sorted(saves.iterdir())
    assert len(folders) >= 21
    with running_lab(tmp_path) as agents:
        lab = FormatLab(agents)
        for folder in folders:
            lab.clear()
            context = lab.context()
            shutil.copytree(folder, context.local.folder)
            context.committer.begin(1, None)
            assert context.committer.commit(), (folder.name, context.local.checkpoints())
            newest = context.checkpoints.newest()
            assert context.format.chosen == folder.name.partition("-")[0], folder.name
            assert newest.step == STEPS.get(folder.name, 100), folder.name
            other = lab.context(incarnation=2)
            path = other.restorer.restore(next_attempt(None, newest, "test", 0, counted=False)).path
            assert Path(path).exists(), folder.name
            back = [one for one in other.local.folder.rglob("*") if one.is_file()]
            assert back, folder.name
            for one in back:
                assert one.read_bytes() == (folder / one.relative_to(other.local.folder)).read_bytes(), one
