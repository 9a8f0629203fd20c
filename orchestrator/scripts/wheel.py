"""
Build a wheel of this very tpuctl, for the machine on which its loop runs.

It works from a checkout, an editable and a plain installation, and needs no network. The same files give the
same bytes, so the wheel's sha256 names it. This module stands beside `orchestrator.scripts.agent_zipapp`.
"""

import base64
import hashlib
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

from orchestrator import __version__
from orchestrator.errors import UsageError
from orchestrator.scripts.agent_zipapp import EPOCH

PACKAGE = Path(__file__).resolve().parents[1]
LOCK = "loop.lock"
"""What the loop needs, each package pinned by its content: a part of requirements.lock."""
NAME = f"tpuctl-{__version__}-py3-none-any.whl"
INFO = f"tpuctl-{__version__}.dist-info"
EXCLUDED = frozenset({"__pycache__", "examples"})
"""Folders of the package that no loop reads."""
TAGS = "Wheel-Version: 1.0\nGenerator: tpuctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = "[console_scripts]\ntpuctl = orchestrator.cli.main:main\n"


def build() -> bytes:
    """Return the wheel. Raise UsageError when nothing says what tpuctl requires."""
    members = {f"orchestrator/{name}": path.read_bytes() for name, path in _files(PACKAGE)}
    beside = PACKAGE.parent / "templates"
    if not (PACKAGE / "templates").is_dir():
        members |= {f"orchestrator/templates/{name}": path.read_bytes() for name, path in _files(beside)}
    info = {"METADATA": _metadata(), "WHEEL": TAGS, "entry_points.txt": ENTRY_POINTS}
    members |= {f"{INFO}/{name}": text.encode() for name, text in info.items()}
    # Last: it lists all others with their checksums, and itself without one.
    members[f"{INFO}/RECORD"] = _record(members)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # Sorted, with one date: the digest decides whether the loop on the VM is replaced.
        for name, content in sorted(members.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def lock() -> bytes:
    """Return the list from which the machine installs what the loop needs: nothing but these very files."""
    return (PACKAGE / "data" / LOCK).read_bytes()


def requirements() -> tuple[str, ...]:
    """
    Return what tpuctl requires: from the checkout's pyproject.toml, else from the installation.

    An editable installation remembers what was required when it was made, so the checkout goes first.
    """
    project = PACKAGE.parent / "pyproject.toml"
    if sys.version_info >= (3, 11) and project.is_file():
        import tomllib

        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if table.get("name") == "tpuctl":
            return tuple(table["dependencies"])
    try:
        found = metadata.requires("tpuctl") or []
    except metadata.PackageNotFoundError as error:
        raise UsageError(
            "tpuctl is not installed here, so its requirements are not known", hint="run: pip install .",
            changed="nothing was changed",
        ) from error  # fmt: skip
    # Extras stay here: the loop needs neither the dashboard nor Apprise.
    return tuple(text for text in found if "extra ==" not in text)


def _metadata() -> str:
    lines = [f"Name: tpuctl\nVersion: {__version__}\nRequires-Python: >=3.10"]
    return "\n".join(["Metadata-Version: 2.1", *lines, *(f"Requires-Dist: {r}" for r in requirements()), ""])


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files below *folder* with their names relative to it, in order."""
    found = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    return sorted((name.as_posix(), path) for name, path in found if not EXCLUDED & set(name.parts))


def _record(members: dict[str, bytes]) -> bytes:
    """Return the list of files with their checksums, as PEP 376 and PEP 427 want it."""
    lines = []
    for name, content in sorted(members.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()
