"""The Python interpreters of this computer, which machines of a local cloud may be asked for by version."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.emulator.machines.own_python import base_interpreter

NAME = re.compile(r"python(3\.\d+)")
ELF = b"\x7fELF"


def interpreters(environ: Mapping[str, str]) -> dict[str, Path]:
    """
    Return an interpreter for each version such as `3.12`: ours, then PATH's, pyenv's and uv's.

    None is started: the file's name says its version. Scripts of version managers and environments do not
    count.
    """
    found: dict[str, Path] = {}
    for path in (base_interpreter(), *_candidates(environ)):
        named = NAME.fullmatch(path.name)
        if named and named[1] not in found and _is_program(path):
            found[named[1]] = path.resolve()
    return dict(sorted(found.items(), key=lambda one: int(one[0].partition(".")[2])))


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    folders = [Path(part) for part in environ.get("PATH", "").split(os.pathsep) if part]
    folders += _versions(Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions")
    folders += _versions(Path(environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python"))
    for folder in folders:
        if not (folder.parent / "pyvenv.cfg").exists():
            yield from sorted(folder.glob("python3.*"))


def _versions(root: Path) -> list[Path]:
    """Return the folders of programs below *root*, newest versions first."""

    def rank(path: Path) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", path.name)]

    return [one / "bin" for one in sorted(root.glob("*"), key=rank, reverse=True)]


def _is_program(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == ELF and os.access(path, os.X_OK)
    except OSError:
        return False
