"""The wheel as users install it: by `uv tool install` and by pipx, from the package index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
pytestmark = [pytest.mark.e2e, pytest.mark.machines]

INSTALLERS = {
    "uv": ([UV, "tool", "install", "--quiet"], "UV_TOOL_BIN_DIR"),
    "pipx": ([UV, "tool", "run", "--quiet", "pipx", "install", "--quiet"], "PIPX_BIN_DIR"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel, as a release does."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.parametrize("installer", INSTALLERS)
def test_an_installed_tpuctl_runs_without_the_checkout(installer, wheel, tmp_path):
    """The command is on the path, plans an example of the wheel, and needs nothing but its base packages."""
    words, place = INSTALLERS[installer]
    folders = {
        name: str(tmp_path / name.lower())
        for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "PIPX_HOME", "PIPX_BIN_DIR")
    }
    retained = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TPUCTL_"))}
    environment = {**retained, **folders, "HOME": str(tmp_path)}

    # A folder of its own: what is installed beside it is no code of a job.
    work = tmp_path / "work"
    work.mkdir()

    def run(*words):
        return subprocess.run(
            words, cwd=work, env=environment, capture_output=True, text=True, check=True
        ).stdout

    run(*words, str(wheel))
    program = str(Path(folders[place]) / "tpuctl")
    assert run(program, "--version").startswith("tpuctl, version ")
    run(program, "init", "--recipe", "numpy-lm")
    assert "Plan for" in run(program, "plan", "--offline")
