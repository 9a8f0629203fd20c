"""`tpuctl-venv` on a real machine folder: made once, never believed half made, uv from the bucket by its sha256."""

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orchestrator.agent.layout import Layout
from orchestrator.agent.machine import venv
from orchestrator.agent.machine.uv import for_uv, program
from orchestrator.agent.machine.venv import WantedPackages, _read, install_command, path_of
from orchestrator.contract.machine_errors import AgentError, DamagedError
from orchestrator.contract.uv_pin import PROGRAMS, VERSION, object_name
from orchestrator.emulator.machines.machine_python import package_sources
from orchestrator.errors import TransientError
from orchestrator.scripts import uv_program
from orchestrator.scripts.agent_zipapp import build


@pytest.fixture
def layout(tmp_path) -> Layout:
    """Return a machine folder with agent and command."""
    found = Layout(tmp_path / "opt")
    found.make()
    build(found.root / "agent.pyz")
    install_command(found, found.root / "agent.pyz")
    return found


def package(folder: Path, name: str, requires: str = "") -> None:
    """Put a wheel of *name* into *folder*."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", meta + (f"Requires-Dist: {requires}\n" if requires else ""))
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def environ_of(layout: Layout, wheels: Path, **more: str) -> dict[str, str]:
    """Return the job's environment on that machine; packages come from *wheels* alone."""
    return {
        "PATH": path_of(layout, os.environ), "HOME": str(layout.root), "TPUCTL_ROOT": str(layout.root),
        "TPUCTL_LOCAL_UV": str(uv_program.program()), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
        **more,
    }  # fmt: skip


def start(layout: Layout, wheels: Path, *words: str, **more: str) -> subprocess.Popen:
    """Start the command as a job does."""
    return subprocess.Popen(
        ["tpuctl-venv", *words], env=environ_of(layout, wheels, **more), cwd=layout.root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(layout: Layout, wheels: Path, *words: str, **more: str) -> tuple[int, str, str]:
    """Run it to its end."""
    process = start(layout, wheels, *words, **more)
    out, err = process.communicate(timeout=120)
    return process.returncode, out.strip(), err


@pytest.fixture
def pins(layout) -> Path:
    """Return a list that asks for one package, which stands in a folder of wheels beside it."""
    package(layout.root / "wheels", "first_package")
    path = layout.root / "requirements.txt"
    path.write_text("first-package\n")
    return path


WHERE = ("python", "-c", "import sys, first_package; print(sys.prefix)")


def test_one_of_many_starts_makes_the_environment_and_a_killed_install_is_made_again(layout, pins):
    """Two starts at once share one installation; a later one finds it; what a kill left is replaced."""
    wheels = layout.root / "wheels"
    both = [start(layout, wheels, "-r", "requirements.txt", "--", *WHERE) for _ in range(2)]
    ends = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], ends
    assert sum("installing requirements.txt" in err for _, err in ends) == 1
    (venv,) = {out.strip() for out, _ in ends}
    assert Path(venv).parent == layout.root / "venvs"
    assert "installing" not in run(layout, wheels, "-r", "requirements.txt", "--", *WHERE)[2]

    # What a SIGKILL leaves: some of the files, and no mark that it is whole.
    (Path(venv) / "complete").unlink()
    next(Path(venv).rglob("first_package.py")).unlink()
    code, again, err = run(layout, wheels, "-r", "requirements.txt", "--", *WHERE)
    assert (code, again) == (0, venv)
    assert "installing" in err


def test_another_text_or_python_is_another_environment(tmp_path):
    """The lists that a list includes count too; the same text under another name does not."""
    one, other, part = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "part.txt"
    part.write_text("x\n")
    one.write_text("-r part.txt\n")
    other.write_text("-r part.txt\n")
    first = WantedPackages((one,), (), "").key("3.10.1")
    assert WantedPackages((other,), (), "").key("3.10.1") == first
    assert WantedPackages((one,), (), "").key("3.11.1") != first
    assert WantedPackages((one,), (), "3.10").key("3.10.1") != first
    assert WantedPackages((), (one,), "").key("3.10.1") != first
    part.write_text("y\n")
    assert WantedPackages((one,), (), "").key("3.10.1") != first


def test_a_list_that_cannot_be_met_runs_nothing(layout, pins):
    """The status is 1, uv's own reason is there, and nothing counts as made."""
    pins.write_text("nowhere-to-be-found==3\n")
    code, out, err = run(layout, layout.root / "wheels", "-r", "requirements.txt", "--", "echo", "ran")
    assert (code, out) == (1, "")
    assert "nowhere-to-be-found" in err
    assert not list(layout.root.glob("venvs/*/complete"))
    assert "absent.txt cannot be read" in run(layout, layout.root, "-r", "absent.txt")[2]


def test_a_bare_list_comes_without_what_it_requires(layout, pins):
    """A package whose own requirement nobody has is installed from `--no-deps`, and refused from `-r`."""
    wheels = layout.root / "wheels"
    package(wheels, "second_package", "nowhere-to-be-found")
    (layout.root / "bare.txt").write_text("second-package\n")
    command = ("--", "python", "-c", "import first_package, second_package; print('both')")
    assert run(layout, wheels, "-r", "requirements.txt", "-r", "bare.txt", *command)[0] == 1
    code, out, _ = run(layout, wheels, "-r", "requirements.txt", "--no-deps", "bare.txt", *command)
    assert (code, out) == (0, "both")


def test_the_command_runs_in_it_and_its_status_is_passed(layout, pins):
    """Programs of the environment come first; a command that is not there is said."""
    wheels = layout.root / "wheels"
    line = 'printf %s "$VIRTUAL_ENV"; exit 7'
    code, out, _ = run(layout, wheels, "-r", "requirements.txt", "--", "sh", "-c", line)
    assert code == 7
    assert out.startswith(str(layout.root / "venvs"))
    assert "no-such-program cannot be started" in run(layout, wheels, "--", "no-such-program")[2]


def test_job_python_is_the_default_and_an_absent_one_is_said(layout, pins):
    """TPUCTL_PYTHON chooses; a Python that cannot be had makes nothing."""
    wheels = layout.root / "wheels"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert _read(["-r", "x"], {"TPUCTL_PYTHON": "3.12"})[0].python == "3.12"
    assert _read(["-p", ours, "-r", "x"], {"TPUCTL_PYTHON": "3.12"})[0].python == ours
    code, _, err = run(
        layout, wheels, "-r", "requirements.txt", TPUCTL_PYTHON="3.99", UV_PYTHON_DOWNLOADS="never"
    )
    assert code == 1
    assert "tpuctl-venv: Python 3.99 cannot be had on this machine: " in err
    assert "Install it there, for example: uv python install 3.99" in err
    assert "has the interpreters of this computer only" in err


class OneObject:
    """A bucket with at most one object."""

    name, retry_timeout = "b", 0.0

    def __init__(self, data: bytes | None) -> None:
        self.data, self.reads = data, 0

    def stat(self, name: str, timeout: float) -> dict[str, int] | None:
        """Return its size."""
        self.asked = name
        return None if self.data is None else {"size": len(self.data)}

    def download(self, name: str, path: Path, size: int) -> None:
        """Write it."""
        self.reads += 1
        path.write_bytes(self.data)


def test_uv_comes_from_the_bucket_once_by_its_sha256(layout, tmp_path):
    """What goes to the bucket is what the machine asks for; once; a wrong one is not used."""
    machine = platform.machine()
    packed = uv_program.packed(machine, tmp_path / "bundles")
    assert f"bundles/{packed.name}" == object_name(PROGRAMS[machine])
    bucket = OneObject(packed.read_bytes())
    for _ in range(2):
        here = program(layout, {}, lambda: bucket)
    assert bucket.reads == 1
    assert hashlib.sha256(here.read_bytes()).hexdigest() == PROGRAMS[machine]
    assert VERSION in subprocess.run([here, "--version"], capture_output=True, text=True, check=True).stdout
    here.unlink()
    for data in (gzip.compress(b"another program"), b"no gzip"):
        with pytest.raises(DamagedError):
            program(layout, {}, lambda data=data: OneObject(data))
        assert not here.exists()
    with pytest.raises(AgentError, match=f"pip install uv=={VERSION}; then: tpuctl up"):
        program(layout, {}, lambda: OneObject(None))


def test_uv_takes_packages_from_where_pip_does(layout):
    """The variables of pip are passed under uv's names; uv's own go before; all indexes count as for pip."""
    reported = for_uv(
        {
            "PIP_INDEX_URL": "https://a",
            "PIP_EXTRA_INDEX_URL": "https://b https://c",
            "PIP_FIND_LINKS": "/x /y",
            "UV_INSECURE_HOST": "h",
            "PIP_TRUSTED_HOST": "g",
            "VIRTUAL_ENV": "/v",
        },
        layout,
    )
    assert reported["UV_DEFAULT_INDEX"] == "https://a"
    assert reported["UV_INDEX"] == "https://b https://c"
    assert reported["UV_FIND_LINKS"] == "/x,/y"
    assert reported["UV_INSECURE_HOST"] == "h"
    assert reported["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert "VIRTUAL_ENV" not in reported


def test_job_python_becomes_the_machines_python3_and_the_setup_runs_again(layout, tmp_path):
    """Its programs come first; another version replaces it; one that cannot be had is said."""
    (layout.root / "state/setup-abc").write_text("")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    environ = environ_of(layout, tmp_path, TPUCTL_PYTHON=ours, UV_PYTHON_DOWNLOADS="never")
    environ = {
        **environ,
        **dict.fromkeys(("PIP_NO_INDEX", "PIP_FIND_LINKS"), ""),
        **package_sources(os.environ),
    }
    venv.own_python(environ, layout, lambda: OneObject(None))
    path = path_of(layout, environ)
    look = [
        shutil.which("python3", path=path),
        "-c",
        "import sys; print(sys.prefix, '%d.%d' % sys.version_info[:2])",
    ]
    assert subprocess.check_output(look, text=True).split() == [str(layout.root / "python"), ours]
    assert shutil.which("pip", path=path) == str(layout.root / "python/bin/pip")
    assert not (layout.root / "state/setup-abc").exists()
    before = (layout.root / "python/complete").stat().st_mtime_ns
    venv.own_python(environ, layout, lambda: OneObject(None))
    assert (layout.root / "python/complete").stat().st_mtime_ns == before
    with pytest.raises(AgentError, match=r"job.python is 3.99, which cannot be had.*3\.99"):
        venv.own_python({**environ, "TPUCTL_PYTHON": "3.99"}, layout, lambda: OneObject(None))


def test_a_module_of_the_current_folder_does_not_fetch_uv(tmp_path, monkeypatch):
    """Python looks there first: a folder of somebody else's would run."""
    (tmp_path / "pip.py").write_text("open('ran', 'w')")
    (tmp_path / "to").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(TransientError, match="cannot be downloaded"):
        uv_program._downloaded("x86_64", tmp_path / "to")
    assert not (tmp_path / "ran").exists()
