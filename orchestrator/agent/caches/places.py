"""Which folders of a machine are kept for the next ones, and what another machine must have in common with it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Tuple

from orchestrator.agent.caches.pieces import PREFIX
from orchestrator.agent.layout import Layout
from orchestrator.agent.machine.venv import PYTHON, path_of
from orchestrator.contract.cache_manifest import COMPILED, ENVIRONMENT, FOLDER
from orchestrator.contract.job_variables import expand
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.trusted_folder import why_untrusted

OF_ALL = ("/", "/usr", "/root", "/home", "/etc", "/var", "/opt", "/tmp", "/usr/local")  # noqa: S108 (refused)
LISTS = ("requirements", "constraints", "pyproject.toml", "setup.py", "setup.cfg", "environment", "uv.lock",
         "poetry.lock", "Pipfile", "pdm.lock", "pixi")  # fmt: skip
"""Beginnings of the names of files that say what to install."""
LONGEST_LIST = 4 << 20
COMPILED_BY = {"JAX_COMPILATION_CACHE_DIR": "jax", "XLA_PERSISTENT_CACHE_PATH": "torch_xla"}
"""The variables of JAX and PyTorch/XLA that name the folder of compiled programs."""
ASK = """\
import json, sys, sysconfig
paths = sysconfig.get_paths()
json.dump({"version": "%d.%d.%d" % sys.version_info[:3], "abi": str(sys.implementation.cache_tag),
           "prefix": paths["data"]}, sys.stdout)
"""


@dataclass(frozen=True)
class Cache:
    """
    Name one cache: its folders by the first part of a member's name, and what makes it another one.

    *title* is what people call it. With *inside* its links may not leave their folder. With *grows* files are
    only added to it: the ones that are new are kept, and the others not packed again.
    """

    name: str
    title: str
    key: str
    places: Mapping[str, Path]
    facts: Mapping[str, str]
    inside: bool = True
    grows: bool = True


def image_prefix(layout: Layout, environ: Mapping[str, str]) -> Dict[str, Path]:
    """Return where pip installs without an environment, nothing for a system's own. Raises AgentError."""
    # In /usr lie the system's own packages, which only apt may change. A version of its own lies below the root.
    prefix = Path(_ask(layout, environ)["prefix"])
    return {} if environ.get(PYTHON) or str(prefix) in ("/", "/usr") else {PREFIX: prefix.resolve()}


def environment(
    layout: Layout,
    environ: Mapping[str, str],
    setup: str,
    image: Iterable[str],
    prefix: Mapping[str, Path],
    container: str = "",
) -> Cache:
    """
    Return the cache of what `job.setup` installs; the code has to be there. Raises AgentError.

    It holds the environments that the agent makes, and what pip adds to the *prefix* of the image's own Python,
    in which *image* has been before. With *container*, the digest of `job.image`, that stands for all that the
    machine has.
    """
    root, python = layout.root, environ.get(PYTHON, "")
    places = {"venvs": root / "venvs", "python": root / "python", "pythons": root / "pythons"}
    facts = {
        "machine": platform.machine(),
        "image": _digest([Path("/etc/os-release")]),
        "libc": os.confstr("CS_GNU_LIBC_VERSION") or "",
        "wanted": python,
    }
    if container:
        facts = {"machine": platform.machine(), "image": container}
    else:
        asked = _ask(layout, environ)
        facts.update(python=asked["version"], abi=asked["abi"], installed=_distributions(image))
    places.update(prefix)
    text = json.dumps([setup, python, facts, _lists(layout.current)], sort_keys=True)
    key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Cache(ENVIRONMENT, "Python packages", key, places, facts, inside=False, grows=False)


def compiled(layout: Layout, of: Cache) -> Cache:
    """Return the cache of compiled programs of jobs in the environment *of*."""
    return Cache(COMPILED, "compiled programs", of.key, {"compiled": compiled_folder(layout)}, of.facts)


def compiled_folder(layout: Layout) -> Path:
    """Return the folder of compiled programs, with one for each framework."""
    return layout.root / "compiled"


def programs(layout: Layout) -> List[Path]:
    """Return the compiled programs on this machine."""
    files = compiled_folder(layout).rglob("*")
    # JAX notes beside some when they were used last.
    return [path for path in files if not path.name.endswith("-atime") and path.is_file()]


def folders(listed: str, environ: Mapping[str, str], home: Path, root: Path) -> List[Cache]:
    """
    Return a cache for each folder of `job.caches`, which is a list in JSON.

    Raises AgentError for a folder that cannot be one: relative, a whole system's, or one that holds ours.
    """
    found = []
    for text in json.loads(listed or "[]"):
        # Twice: the value of $HF_HOME in job.env may hold a name itself.
        name = expand(expand(str(text), environ), environ)
        path = home / name[2:] if name.startswith("~/") else Path(name)
        if not path.is_absolute() or "$" in name:
            raise AgentError(f"job.caches: {text} is {name!r} on this machine, which is no absolute path")
        path = Path(os.path.normpath(str(path.resolve())))
        if str(path) in OF_ALL or path == home.resolve() or path in (root, *root.parents):
            raise AgentError(
                f"job.caches: {text} is {path}, which holds more than a cache; name a folder in it"
            )
        if root / "state" in (path, *path.parents):
            raise AgentError(f"job.caches: {text} is {path}, where tpuctl keeps its own state")
        why = why_untrusted(path)
        if why:
            raise AgentError(f"job.caches: {text} is {path}, but {why}: the job would use what lies in it")
        key = hashlib.sha256(str(text).encode()).hexdigest()[:32]
        found.append(Cache(f"{FOLDER}{key[:16]}", str(text), key, {"folder": path}, {}))
    return found


def _ask(layout: Layout, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return what the machine's `python3` says of itself. Raises AgentError."""
    path = path_of(layout, {name: value for name, value in environ.items() if name != PYTHON})
    try:
        done = subprocess.run(
            ["python3", "-c", ASK],
            env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        found: Dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise AgentError(f"python3 does not say where it installs: {error}") from error
    return found


def _distributions(image: Iterable[str]) -> str:
    """Return what changes with the distributions that the image has: another image is not the same machine."""
    names = {part for member in image for part in member.split("/") if part.endswith("-info")}
    return hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _lists(code: Path) -> List[Tuple[str, str]]:
    """Return name and digest of each file in the code that may say what to install, two folders deep."""
    paths = [path for pattern in ("*", "*/*") for path in sorted(code.glob(pattern)) if path.is_file()]
    lists = [path for path in paths if path.name.startswith(LISTS) and path.stat().st_size <= LONGEST_LIST]
    return [(str(path.relative_to(code)), _digest([path])) for path in lists]


def _digest(paths: List[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()[:16]
