"""The wheel that goes to the VM: pip takes it, offline, and what it installs is this tpuctl."""

import hashlib
import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest

from orchestrator import __version__
from orchestrator.errors import UsageError
from orchestrator.scripts import wheel


def test_the_same_tpuctl_gives_the_same_bytes():
    """Its sha256 says whether the VM has it already."""
    assert wheel.build() == wheel.build()


def test_the_wheel_holds_what_the_loop_needs(monkeypatch):
    """Package, templates and tables; every module that lies here."""
    names = set(zipfile.ZipFile(BytesIO(wheel.build())).namelist())
    here = Path(wheel.__file__).parents[1]
    modules = {f"orchestrator/{p.relative_to(here).as_posix()}" for p in here.rglob("*.py")}
    assert {n for n in modules if "/examples/" not in n} <= names
    assert {"orchestrator/templates/startup.sh.j2", "orchestrator/data/tpu_zones.csv"} <= names
    assert not [n for n in names if "__pycache__" in n]


def test_pip_installs_it_without_the_network(tmp_path):
    """Name, version, requirements and the command are in its metadata; the files are as the record says."""
    if subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
    ).returncode:
        pytest.skip("there is no pip here")
    path = tmp_path / wheel.NAME
    path.write_bytes(wheel.build())
    target = tmp_path / "there"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        target,
        path,
    ]
    subprocess.run(command, check=True)
    (found,) = metadata.distributions(path=[str(target)])
    assert (found.name, found.version) == ("tpuctl", __version__)
    assert any(r.startswith("google-cloud-tpu") for r in found.requires)
    assert not [r for r in found.requires if "uvicorn" in r]
    assert [e.value for e in found.entry_points] == ["orchestrator.cli.main:main"]
    # What is installed packs itself again, without a checkout, to the very same bytes.
    words = "import hashlib; from orchestrator.scripts import wheel\n"
    words += "print(hashlib.sha256(wheel.build()).hexdigest())"
    environment = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}
    said = subprocess.run(
        [sys.executable, "-c", words], cwd=target, env=environment, text=True, capture_output=True, check=True
    )
    assert said.stdout.strip() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_installation_knows_its_requirements_without_a_checkout(monkeypatch, tmp_path):
    """Then they come from what pip wrote down; with neither, the error says what to do."""
    monkeypatch.setattr(wheel, "PACKAGE", tmp_path / "orchestrator")
    monkeypatch.setattr(metadata, "requires", lambda _: ["click>=8.1", 'numpy>=1.26; extra == "local"'])
    assert wheel.requirements() == ("click>=8.1",)

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    with pytest.raises(UsageError, match="not installed"):
        wheel.requirements()
