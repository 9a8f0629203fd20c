"""
Build a wheel of the running tpuctl for the machine that runs its loop.

It works from a checkout, an editable or a plain installation, without network. The same files give the same
bytes, so the wheel's sha256 names it. See also `orchestrator.scripts.agent_zipapp`.
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
REQUIREMENTS = PACKAGE / "data" / "loop_requirements.lock"
"""The dependencies of the loop, pinned by hash: a part of requirements.lock."""
LOCK = "loop.lock"
"""The name of that file on the VM."""
NAME = f"tpuctl-{__version__}-py3-none-any.whl"
INFO = f"tpuctl-{__version__}.dist-info"
EXCLUDED = frozenset({"__pycache__", "examples"})
"""Folders of the package that the loop does not need."""
TAGS = "Wheel-Version: 1.0\nGenerator: tpuctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = "[console_scripts]\ntpuctl = orchestrator.cli.main:main\n"


def build() -> bytes:
    """Return the wheel's bytes. Raise UsageError if tpuctl's own requirements cannot be found."""
    members = {f"orchestrator/{name}": path.read_bytes() for name, path in _files(PACKAGE)}
    beside = PACKAGE.parent / "templates"
    if not (PACKAGE / "templates").is_dir():
        members |= {f"orchestrator/templates/{name}": path.read_bytes() for name, path in _files(beside)}
    info = {"METADATA": _metadata(), "WHEEL": TAGS, "entry_points.txt": ENTRY_POINTS}
    members |= {f"{INFO}/{name}": text.encode() for name, text in info.items()}
    # Written last: it lists all other members with their checksums, and itself without one.
    members[f"{INFO}/RECORD"] = _record(members)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # Fixed order and date: a changed digest replaces the loop on the VM.
        for name, content in sorted(members.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def lock() -> bytes:
    """Return the pinned requirements of the loop, for pip's --require-hashes."""
    return REQUIREMENTS.read_bytes()


def requirements() -> tuple[str, ...]:
    """
    Return tpuctl's requirements: from the checkout's pyproject.toml, else from the installation.

    The checkout has priority, since an editable installation keeps the requirements of its day. Raise
    UsageError.
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
    # Without extras: the loop needs neither the dashboard nor Apprise.
    return tuple(text for text in found if "extra ==" not in text)


def _metadata() -> str:
    lines = [f"Name: tpuctl\nVersion: {__version__}\nRequires-Python: >=3.10"]
    return "\n".join(["Metadata-Version: 2.1", *lines, *(f"Requires-Dist: {r}" for r in requirements()), ""])


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files below *folder* with their relative names, sorted."""
    found = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    return sorted((name.as_posix(), path) for name, path in found if not EXCLUDED & set(name.parts))


def _record(members: dict[str, bytes]) -> bytes:
    """Return the wheel's RECORD file (PEP 376, PEP 427)."""
    lines = []
    for name, content in sorted(members.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()
