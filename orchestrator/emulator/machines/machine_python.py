"""Give a machine its own Python over an interpreter of this computer; installed packages stay in it."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

FOLDER = "usr/lib/local-cloud/python"
"""Path below the root of the machine's files."""
LINE = "import _machine\n"
# As on the image, packages are installed into the interpreter itself and into the user's folder. Those of the
# computer's interpreter, which provides only its standard library, are not searched. The image also lacks
# python3-venv, in which Debian and Ubuntu keep ensurepip, so venv cannot install pip.
MODULE = """\
import site
import sys

site.PREFIXES.clear()
WORDS = \"\"\"\\
The virtual environment was not created successfully because ensurepip is not
available.  On Debian/Ubuntu systems, you need to install the python3-venv
package using the following command.

    apt install python%d.%d-venv

You may need to use sudo with that command.  After installing the python3-venv
package, recreate your virtual environment.

Failing command: %s
\"\"\"


def _refuse(builder, context):
    print(WORDS % (*sys.version_info[:2], context.env_exe))
    sys.exit(1)


class _Image:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "ensurepip":
            raise ModuleNotFoundError("No module named 'ensurepip'", name=name)
        if name != "venv":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def changed(module):
            load(module)
            module.EnvBuilder._setup_pip = _refuse

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, _Image)
"""
PIP = """\
#!{python}
import sys

from pip._internal.cli.main import main

sys.exit(main())
"""
NO_PIP = """\
#!/bin/sh
echo "Command '${0##*/}' not found, but can be installed with:" >&2
echo "apt install python3-pip" >&2
exit 127
"""
"""Precedes the computer's pip, which would otherwise install into the computer's Python."""
COMPILE = "import sys; sys.path.insert(0, sys.argv[1]); import pip._internal.commands.install"
COMPILE_TIMEOUT = 60
WHEELS = ("lib/python{version}/ensurepip/_bundled", "/usr/share/python-wheels")
NAME = re.compile(r"python(3\.\d+)")
ELF = b"\x7fELF"
SOURCES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")
"""The settings of pip that machines get; others (a target, --user, a proxy, hashes) are left out."""
SECTIONS = ("global", "install")


def base_interpreter() -> Path:
    """Return the interpreter on which tpuctl's own environment is based."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()


def programs(files: Path) -> Path:
    """Return the folder of the machine's `python3` and `pip`, given the root of its files."""
    return files / FOLDER / "bin"


def install_python(files: Path, base: Path, cache: Path, *, with_pip: bool = True) -> None:
    """
    Give the machine a Python over the interpreter *base*, unless it has one.

    *cache* keeps pip, unpacked once. The folder gets its name last, so that a killed boot leaves none.
    """
    target = files / FOLDER
    if target.exists():
        return
    version = version_of(base)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".python-{uuid4().hex}")
    packages = fresh / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    (fresh / "bin").mkdir()
    (fresh / "bin/python3").symlink_to(base)
    for name in ("python", f"python{version}"):
        (fresh / "bin" / name).symlink_to("python3")
    # pip installs with --user only if the interpreter's own packages are visible (see MODULE).
    (fresh / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = true\n")
    (packages / "_machine.py").write_text(MODULE)
    (packages / "_machine.pth").write_text(LINE)
    pip = _pip(base, version, cache) if with_pip else None
    if pip is not None:
        shutil.copytree(pip, packages, copy_function=_link, dirs_exist_ok=True)
    for name in ("pip", "pip3", f"pip{version}"):
        script = fresh / "bin" / name
        script.write_text(PIP.format(python=target / "bin/python3") if pip else NO_PIP)
        script.chmod(0o755)
    fresh.rename(target)


def version_of(base: Path) -> str:
    """Return the version in an interpreter's file name such as `python3.11`; ours for any other name."""
    found = base.name.removeprefix("python")
    return found if found.count(".") == 1 else f"{sys.version_info.major}.{sys.version_info.minor}"


def _pip(base: Path, version: str, cache: Path) -> Path | None:
    """Return pip as unpacked from the wheel bundled with Python, with that one or ours; None without any."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    folders = [base.parent.parent / WHEELS[0].format(version=version), Path(WHEELS[1])]
    folders.append(Path(sys.base_prefix) / WHEELS[0].format(version=ours))
    wheel = next((one for folder in folders for one in sorted(folder.glob("pip-*.whl"))), None)
    if wheel is None:
        return None
    unpacked = cache / wheel.stem
    if unpacked.exists():
        # Not the first machine: without this, each one computes half a second longer at its first install.
        _compile(base, version, unpacked)
    else:
        fresh = cache / f".{uuid4().hex}"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fresh)
        with suppress(OSError):  # another machine was faster
            fresh.rename(unpacked)
        shutil.rmtree(fresh, ignore_errors=True)
    return unpacked


def _compile(base: Path, version: str, packages: Path) -> None:
    """Keep what Python compiles of pip for an installation, for all machines with this *version* of it."""
    if any((packages / "pip/__pycache__").glob(f"*-{version.replace('.', '')}.pyc")):
        return
    with suppress(OSError, subprocess.SubprocessError):  # each machine can do it for itself
        subprocess.run(
            [base, "-I", "-c", COMPILE, packages], check=False, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=COMPILE_TIMEOUT,
        )  # fmt: skip


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def interpreters(environ: Mapping[str, str]) -> dict[str, Path]:
    """
    Return an interpreter for each version such as `3.12`: ours, then PATH's, pyenv's and uv's.

    None is started, because the file's name has its version. Scripts of version managers and environments are
    ignored.
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


def package_sources(environ: Mapping[str, str]) -> dict[str, str]:
    """
    Return pip's variables for a machine: those of the caller, else what pip's files say.

    The order is pip's (its documentation, "Configuration"): files of the system, the user and the
    environment, then PIP_CONFIG_FILE, then variables. Unreadable files are ignored.
    """
    found: dict[str, str] = {}
    for path in _files(environ):
        found.update(_read(path))
    for name in SOURCES:
        value = environ.get(_variable(name), "").strip()
        if value:
            found[name] = value
    return {_variable(name): value for name, value in found.items()}


def _variable(name: str) -> str:
    return "PIP_" + name.upper().replace("-", "_")


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder) / "pip/pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen:
        yield Path(chosen)


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeError, OSError):
        return {}
    return {
        name: " ".join(parser.get(section, name).split())
        for section in SECTIONS if parser.has_section(section)
        for name in SOURCES if parser.has_option(section, name)
    }  # fmt: skip
