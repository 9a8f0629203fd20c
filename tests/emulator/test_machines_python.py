"""A machine has a Python of its own: what is installed there stays there, and tpuctl's packages are not visible."""

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from orchestrator.emulator.machines.machine_python import (
    FOLDER,
    install_python,
    interpreters,
    package_sources,
)
from orchestrator.emulator.machines.machine_settings import SYSTEM_PATH
from orchestrator.scripts import uv_program
from tests.emulator.machines_lab import KINDS, lab

MANY = 22
PACKAGES = 'import sysconfig; print(sysconfig.get_path("purelib"))'
LOOK = "import json, sys; print(json.dumps([sys.executable, sys.path]))"


def wheels(folder: Path, count: int = MANY) -> Path:
    """Return a folder of small packages `machine-only-N`, which no index has."""
    folder.mkdir(parents=True)
    for number in range(count):
        name, info = f"machine_only_{number}", f"machine_only_{number}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}.py", f"NUMBER = {number}\n")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            archive.writestr(f"{info}/RECORD", "")
    return folder


def names(count: int = MANY) -> str:
    """Return the names of the packages."""
    return " ".join(f"machine-only-{number}" for number in range(count))


@pytest.fixture
def there() -> Iterator[Path]:
    """Return a folder of packages; a machine in namespaces has a /tmp of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield wheels(Path(name) / "wheels")


@pytest.mark.parametrize("user", [False, True])
def test_what_a_machine_installs_stays_on_it(make, there, user):
    """22 packages, with --user or without: importable there, and the computer has no more than before."""
    before = {one.metadata["Name"] for one in metadata.distributions()}
    with make(sources={"PIP_FIND_LINKS": str(there), "PIP_NO_INDEX": "1"}) as it:
        it.boot()
        it.output(f"pip install --quiet {'--user' if user else ''} {names()}")
        assert it.output("python3 -c 'import machine_only_21; print(machine_only_21.NUMBER)'") == "21"
        found = json.loads(it.output("pip list --format json"))
        assert sum(one["name"].startswith("machine") for one in found) == MANY
        assert len(found) <= MANY + 2, "nothing of the computer's is listed"
    assert {one.metadata["Name"] for one in metadata.distributions()} == before


def test_tpuctl_and_its_packages_are_not_importable(make, monkeypatch, tmp_path):
    """Neither by the interpreter, nor by the caller's variables, nor by a program of tpuctl's environment."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{SYSTEM_PATH}")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path))
    with make() as it:
        it.boot()
        for package in ("click", "google.cloud.storage", "pydantic", "orchestrator", "numpy", "uvicorn"):
            done = it.run(f"python3 -c 'import {package}'")
            assert "No module named" in str(done.stderr), package
        executable, path = json.loads(it.output(f"python3 -c '{LOOK}'"))
        assert FOLDER in executable
        assert [part for part in path if "-packages" in part and FOLDER not in part] == []
        shown = dict(line.partition("=")[::2] for line in it.output("env").splitlines())
        assert str(Path(sys.executable).parent) not in shown["PATH"].split(":")
        assert not {"PYTHONPATH", "VIRTUAL_ENV", "PIP_TARGET"} & shown.keys()
        assert it.run("command -v tpuctl").exit_status != 0


def test_a_second_machine_installs_again(kind, there, tmp_path):
    """Packages of the first one are not on the second."""
    sources = {"PIP_FIND_LINKS": str(there), "PIP_NO_INDEX": "1"}
    with lab(KINDS[kind], tmp_path / "a", sources=sources) as it:
        it.boot()
        it.output("pip install --quiet machine-only-3")
        with lab(KINDS[kind], tmp_path / "b", sources=sources) as other:
            other.boot()
            assert "No module named" in str(other.run("python3 -c 'import machine_only_3'").stderr)
            assert "Successfully installed" in other.output("pip install machine-only-3")


def test_a_vm_keeps_what_was_installed_over_a_reboot(make, there):
    """Its disk stays, so does its Python."""
    with make(kind="vm") as it:
        it.boot()
        where = it.output(f"python3 -c '{PACKAGES}'")
        it.output(f"python3 -m zipfile -e {there}/machine_only_5-1.0-py3-none-any.whl {where}")
        it.machines.stop(it.machine.id)
        it.boot()
        assert it.output("python3 -c 'import machine_only_5; print(1)'") == "1"


def test_programs_of_the_machine_itself_still_run(make):
    """flock, the stand-in of gcloud with tpuctl's interpreter, and the machine's environment of its own."""
    with make() as it:
        it.boot()
        assert it.output("flock -n ~/lock true && echo taken") == "taken"
        # Refused when all is imported, and before the network is asked; by gcloud itself, where there is one.
        refused = it.run("gcloud storage no-such-verb")
        assert refused.exit_status == 2
        assert "Traceback" not in str(refused.stderr)
        assert it.output("python3 -m venv --without-pip ~/v && ~/v/bin/python -c 'print(1)'") == "1"


def test_where_packages_come_from_is_read_as_pip_reads_it(tmp_path):
    """Files of the user, then PIP_CONFIG_FILE, then variables; nothing but sources passes."""
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://one.example/simple\nfind-links =\n  /a\n  /b\nuser = yes\n"
        "[install]\ntrusted-host = one.example\ntarget = /elsewhere\n"
    )
    chosen = tmp_path / "chosen.conf"
    chosen.write_text("[global]\nindex-url = https://two.example/simple\n")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    found = package_sources({**home, "PIP_EXTRA_INDEX_URL": "https://three.example", "PIP_USER": "1"})
    assert found["PIP_INDEX_URL"] == "https://one.example/simple"
    assert found["PIP_FIND_LINKS"] == "/a /b"
    assert found["PIP_TRUSTED_HOST"] == "one.example"
    assert found["PIP_EXTRA_INDEX_URL"] == "https://three.example"
    assert not {"PIP_USER", "PIP_TARGET"} & found.keys()
    again = package_sources({**home, "PIP_CONFIG_FILE": str(chosen)})
    assert again["PIP_INDEX_URL"] == "https://two.example/simple"


def test_a_killed_boot_leaves_no_half_python(tmp_path, monkeypatch):
    """The folder has its name only when it is whole; the next boot makes it."""
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        install_python(tmp_path / "m", Path(sys.executable).resolve(), tmp_path / "cache")
    assert not (tmp_path / "m" / FOLDER).exists()
    monkeypatch.undo()
    install_python(tmp_path / "m", Path(sys.executable).resolve(), tmp_path / "cache")
    assert (tmp_path / "m" / FOLDER / "bin/pip").exists()


def test_pip_is_compiled_once_for_all_machines_but_the_first(tmp_path):
    """The second machine compiles what it would compile anyhow, into the folder that later ones get it from."""
    base = Path(sys.executable).resolve()

    def compiled(name):
        install_python(tmp_path / name, base, tmp_path / "cache")
        return {path.name: path.stat().st_ino for path in (tmp_path / name / FOLDER).rglob("install*.pyc")}

    assert compiled("first") == {}
    second = compiled("second")
    assert second
    assert compiled("third") == second


def test_uv_is_the_pinned_one():
    """Whatever way it came: its sha256 is the one that machines ask for."""
    import hashlib
    import platform

    from orchestrator.contract.uv_pin import PROGRAMS

    data = uv_program.program().read_bytes()
    assert hashlib.sha256(data).hexdigest() == PROGRAMS[platform.machine()]


def program(path: Path, data: bytes = b"\x7fELF") -> Path:
    """Make a file that looks like a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def test_interpreters_are_those_of_path_pyenv_and_uv_not_scripts_and_environments(tmp_path):
    """The newest patch of a version wins; scripts and environments do not count."""
    old = program(tmp_path / ".pyenv/versions/3.9.2/bin/python3.9")
    new = program(tmp_path / ".pyenv/versions/3.9.18/bin/python3.9")
    other = program(tmp_path / ".local/share/uv/python/cpython-3.8.20-linux/bin/python3.8")
    program(tmp_path / "shims/python3.7", b"#!/bin/sh\n")
    program(tmp_path / "venv/bin/python3.6")
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    path = f"{tmp_path / 'shims'}:{tmp_path / 'venv/bin'}"
    found = interpreters({"HOME": str(tmp_path), "PATH": path})
    assert found["3.9"] == new != old
    assert found["3.8"] == other
    assert not {"3.7", "3.6"} & found.keys()
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in found
