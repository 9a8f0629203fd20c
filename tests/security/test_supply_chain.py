"""What is installed with tpuctl is pinned by content, and the same sources give the same archives."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.cli.cli_kit import ROOT

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PINNED = re.compile(
    r"([a-z0-9-]+)==([0-9][\w.]*)(?: ; ([^\\\n]+?))? \\\n(?:    --hash=sha256:[0-9a-f]{64} \\\n)*"
    r"    --hash=sha256:[0-9a-f]{64}\n"
)
HOW = (
    "requirements.lock is behind pyproject.toml; recreate it: uv pip compile pyproject.toml --universal "
    "--generate-hashes --python-version 3.10 --extra local --extra dashboard --extra metrics --extra notify "
    "--no-header --no-annotate -o requirements.lock"
)


def system(python):
    """Return what markers ask about a computer with Linux and this Python."""
    return {
        "python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux",
        "platform_system": "Linux", "os_name": "posix", "platform_python_implementation": "CPython",
        "implementation_name": "cpython", "extra": "",
    }  # fmt: skip


def locked(python):
    """Return the pinned versions by name, as pip would take them on that Python."""
    entries = PINNED.findall(LOCK)
    taken = [(name, version) for name, version, marker in entries if holds(marker, python)]
    assert len(taken) == len(dict(taken)), "a package has two versions at once"
    return dict(taken)


def holds(marker, python):
    """Return whether a marker holds on that Python."""
    return not marker or Marker(str(marker)).evaluate(system(python))


def test_each_line_of_the_lock_is_a_version_with_the_checksums_of_its_files():
    """Nothing comes from an address, nothing without a checksum."""
    assert PINNED.sub("", LOCK) == ""
    assert len(PINNED.findall(LOCK)) > 50


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_fits_what_the_package_asks_for(python):
    """Each requirement of each extra for users has a version that it accepts, on every Python."""
    found = locked(python)
    extras = [
        line for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines
    ]
    for line in (*PROJECT["dependencies"], *extras):
        wanted = Requirement(line)
        version = found.get(canonicalize_name(wanted.name))
        assert version is not None, f"{line}: {HOW}"
        assert wanted.specifier.contains(version), f"{line}: {HOW}"


def test_what_these_packages_need_is_locked_too():
    """By what the installed ones say; so pip has nothing left to choose."""
    python = ".".join(map(str, sys.version_info[:2]))
    found = locked(python)
    for name in found:
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate(system(python)):
                assert canonicalize_name(need.name) in found, f"{name} needs {need}: {HOW}"


def test_the_bill_of_materials_names_all_of_it():
    """Each entry with its checksums; the same lock gives the same bytes."""
    words = [sys.executable, str(ROOT / ".ci" / "sbom")]
    first, second = (subprocess.run(words, capture_output=True, check=True).stdout for _ in range(2))
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = sorted((part["name"], part["version"]) for part in bill["components"])
    assert names == sorted((name, version) for name, version, _ in PINNED.findall(LOCK))
    digests = {fact["value"] for part in bill["components"] for fact in part["properties"]}
    assert set(re.findall(r"sha256:(\w{64})", LOCK)) <= digests


def test_the_source_archive_is_the_same_when_built_again(tmp_path):
    """Whoever builds this commit can compare checksums; the wheel's test is in test_house.py."""
    from hatchling.builders.sdist import SdistBuilder

    built = [next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path / name))) for name in ("one", "two")]
    one, two = (Path(path).read_bytes() for path in built)
    assert one == two


LOOP = ROOT / "orchestrator/data/loop_requirements.lock"


def needed_by_the_loop():
    """Return the names of what tpuctl needs without any extra, by what the installed packages say."""
    pinned = {name for name, _, _ in PINNED.findall(LOCK)}
    waiting = [Requirement(line) for line in PROJECT["dependencies"]]
    found: set[tuple[str, str]] = set()
    while waiting:
        need = waiting.pop()
        for extra in ("", *need.extras):
            place = (canonicalize_name(need.name), extra)
            if place in found or place[0] not in pinned:
                continue
            found.add(place)
            try:
                lines = metadata.requires(need.name) or []
            except metadata.PackageNotFoundError:
                continue
            for line in lines:
                more = Requirement(line)
                # Of any system and Python: the lock is for all of them, and holds what some do not need.
                marker = str(more.marker or "")
                if not re.search(r"\bextra\b", marker) or (extra and f'extra == "{extra}"' in marker):
                    waiting.append(more)
    return {name for name, _ in found}


def test_the_loop_on_the_vm_is_installed_from_a_lock_of_its_own():
    """The same versions and checksums, of what it needs alone: `TPUCTL_UPDATE_LOCK=1` writes it again."""
    names = needed_by_the_loop()
    if os.environ.get("TPUCTL_UPDATE_LOCK"):
        LOOP.write_text("".join(match[0] for match in PINNED.finditer(LOCK) if match[1] in names))
    entries = [match[0] for match in PINNED.finditer(LOOP.read_text())]
    assert "".join(entries) == LOOP.read_text()
    held = {PINNED.match(entry)[1] for entry in entries}
    assert entries == [match[0] for match in PINNED.finditer(LOCK) if match[1] in held]
    assert {"google-cloud-tpu", "paramiko", "pydantic-core", "certifi", "protobuf"} <= names <= held
    assert not {"uvicorn", "asyncssh", "uv"} & held


MENDED = {"h11": "0.16", "filelock": "3.20.1", "cryptography": "44.0.1", "starlette": "0.47.2"}
"""The first without a fault that concerned us: CVE-2025-43859, -68146, CVE-2024-12797, CVE-2025-54121."""


def test_no_floor_lies_below_a_fault_that_was_mended():
    """Nobody gets an older one who installs without the lock."""
    lines = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    wanted = {line.name: line.specifier for line in map(Requirement, lines) if line.name in MENDED}
    assert wanted.keys() == MENDED.keys()
    for name, first in MENDED.items():
        (floor,) = [one.version for one in wanted[name] if one.operator == ">="]
        assert Version(floor) >= Version(first), name


def test_what_continuous_integration_installs_is_pinned_by_content():
    """The tools of the tests, and pip-audit itself."""
    for name in ("dev-requirements.txt", "audit-requirements.txt"):
        text = (ROOT / ".github" / name).read_text()
        assert PINNED.sub("", text) == "", name
    tools = {name for name, _, _ in PINNED.findall((ROOT / ".github/dev-requirements.txt").read_text())}
    for line in PROJECT["optional-dependencies"]["dev"]:
        wanted = Requirement(line)
        assert wanted.name == "tpuctl" or canonicalize_name(wanted.name) in tools, line
