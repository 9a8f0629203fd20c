"""A machine's own Python: what is installed on a machine stays there, and nothing of tpuctl's is seen there."""

import os
import shutil
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

FOLDER = "usr/lib/local-cloud/python"
"""Below the root of the machine's files."""
LINE = "import _machine\n"
# As on the image, packages go into the interpreter itself and into the user's folder; those of the computer's
# interpreter, which lends only its standard library, are not looked at.
# Nor has the image python3-venv, in which Debian and Ubuntu keep ensurepip: venv cannot bring pip.
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
"""Stands before the pip of the computer, which would install there."""
WHEELS = ("lib/python{version}/ensurepip/_bundled", "/usr/share/python-wheels")


def base_interpreter() -> Path:
    """Return the interpreter under tpuctl's own environment."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()


def programs(files: Path) -> Path:
    """Return the folder of `python3` and `pip` of the machine whose files are below *files*."""
    return files / FOLDER / "bin"


def install_python(files: Path, base: Path, cache: Path, *, with_pip: bool = True) -> None:
    """
    Give the machine a Python over the interpreter *base*, unless it has one.

    *cache* keeps pip, unpacked once, where the machine is to have it. The folder gets its name last, so that
    a killed boot leaves none.
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
    # pip installs with --user only where the interpreter's own packages would be seen (see MODULE).
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
    """Return the version of an interpreter with such a file name as `python3.11`; ours for any other name."""
    found = base.name.removeprefix("python")
    return found if found.count(".") == 1 else f"{sys.version_info.major}.{sys.version_info.minor}"


def _pip(base: Path, version: str, cache: Path) -> Path | None:
    """Return pip as unpacked from the wheel that comes with Python, this one's or ours; None without any."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    folders = [base.parent.parent / WHEELS[0].format(version=version), Path(WHEELS[1])]
    folders.append(Path(sys.base_prefix) / WHEELS[0].format(version=ours))
    wheel = next((one for folder in folders for one in sorted(folder.glob("pip-*.whl"))), None)
    if wheel is None:
        return None
    kept = cache / wheel.stem
    if not kept.exists():
        fresh = cache / f".{uuid4().hex}"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fresh)
        with suppress(OSError):  # another machine was faster
            fresh.rename(kept)
        shutil.rmtree(fresh, ignore_errors=True)
    return kept


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
