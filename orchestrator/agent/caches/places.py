"""Define which folders are cached, and what another machine must have in common to use them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Tuple

from orchestrator.agent.caches.cache_manifest import COMPILED, ENVIRONMENT, FOLDER
from orchestrator.agent.caches.pieces import PREFIX
from orchestrator.agent.layout import Layout
from orchestrator.agent.machine.venv import PYTHON, path_of
from orchestrator.contract.job_variables import expand
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.trusted_folder import untrusted

OF_ALL = ("/", "/usr", "/root", "/home", "/etc", "/var", "/opt", "/tmp", "/usr/local")  # noqa: S108 (refused)
LISTS = ("requirements", "constraints", "pyproject.toml", "setup.py", "setup.cfg", "environment", "uv.lock",
         "poetry.lock", "Pipfile", "pdm.lock", "pixi")  # fmt: skip
"""Prefixes of the names of files that list what to install."""
MAX_LIST = 4 << 20
COMPILED_BY = {"JAX_COMPILATION_CACHE_DIR": "jax", "XLA_PERSISTENT_CACHE_PATH": "torch_xla"}
"""Variables with which JAX and PyTorch/XLA name their folder of compiled programs."""
ASK = """\
import json, sys, sysconfig
paths = sysconfig.get_paths()
json.dump({"version": "%d.%d.%d" % sys.version_info[:3], "abi": str(sys.implementation.cache_tag),
           "prefix": paths["data"]}, sys.stdout)
"""


@dataclass(frozen=True)
class Cache:
    """
    One cache: its folders by the first part of a member's name, and the facts that form its key.

    *title* is its name in messages. *inside*: links may not leave their folder. *grows*: files are only
    added, so new ones are stored and the others not packed again.
    """

    name: str
    title: str
    key: str
    places: Mapping[str, Path]
    facts: Mapping[str, str]
    inside: bool = True
    grows: bool = True


def image_prefix(layout: Layout, environ: Mapping[str, str]) -> Dict[str, Path]:
    """Return where pip installs without an environment, {} for a distribution's own Python. Raise AgentError."""
    # /usr holds the distribution's packages, which only apt may change. An own Python is below the root folder.
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
    Return the cache of what `job.setup` installs; the code must be on the machine. Raise AgentError.

    It holds the environments that the agent makes, and what pip adds to the *prefix* of the image's own
    Python; *image* lists what that had before. *container*, the digest of `job.image`, replaces the facts
    about the machine.
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
    """Return the cache of programs that jobs have compiled in environment *of*."""
    return Cache(COMPILED, "compiled programs", of.key, {"compiled": compiled_folder(layout)}, of.facts)


def compiled_folder(layout: Layout) -> Path:
    """Return the folder of compiled programs, which has a subfolder for each framework."""
    return layout.root / "compiled"


def programs(layout: Layout) -> List[Path]:
    """Return the files of compiled programs on this machine."""
    files = compiled_folder(layout).rglob("*")
    # JAX stores the time of last use in a file beside each program.
    return [path for path in files if not path.name.endswith("-atime") and path.is_file()]


def folders(listed: str, environ: Mapping[str, str], home: Path, root: Path) -> List[Cache]:
    """
    Return a cache for each folder of `job.caches`, a JSON list.

    Raise AgentError for a folder that cannot be cached: relative, a system folder, or one that holds ours.
    """
    found = []
    for text in json.loads(listed or "[]"):
        # Twice: the value of $HF_HOME in job.env may itself contain a name.
        name = expand(expand(str(text), environ), environ)
        path = home / name[2:] if name.startswith("~/") else Path(name)
        if not path.is_absolute() or "$" in name:
            raise AgentError(f"job.caches: {text} is {name!r} on this machine, which is not an absolute path")
        path = Path(os.path.normpath(str(path.resolve())))
        if str(path) in OF_ALL or path == home.resolve() or path in (root, *root.parents):
            raise AgentError(
                f"job.caches: {text} is {path}, which holds more than a cache; name a folder in it"
            )
        if root / "state" in (path, *path.parents):
            raise AgentError(f"job.caches: {text} is {path}, where tpuctl keeps its own state")
        others = untrusted(path)
        if others:
            raise AgentError(
                f"job.caches: {text} is {path}, but {others.message}: the job would use what lies in it"
            )
        key = hashlib.sha256(str(text).encode()).hexdigest()[:32]
        found.append(Cache(f"{FOLDER}{key[:16]}", str(text), key, {"folder": path}, {}))
    return found


def _ask(layout: Layout, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return facts that the machine's `python3` reports about itself. Raise AgentError."""
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
    """Return a digest of the image's Python distributions: another image makes another cache."""
    names = {part for member in image for part in member.split("/") if part.endswith("-info")}
    return hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _lists(code: Path) -> List[Tuple[str, str]]:
    """Return path and digest of each file of the code that may list packages, up to two folders deep."""
    paths = [path for pattern in ("*", "*/*") for path in sorted(code.glob(pattern)) if path.is_file()]
    lists = [path for path in paths if path.name.startswith(LISTS) and path.stat().st_size <= MAX_LIST]
    return [(str(path.relative_to(code)), _digest([path])) for path in lists]


def _digest(paths: List[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()[:16]
