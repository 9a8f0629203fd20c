"""What the setup installs: packages that come in the wrong build or do not fit each other."""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.preflight.facts import Requirement, SourceFacts, numbers
from orchestrator.advice.preflight.finding import Hit, Level, rule
from orchestrator.advice.preflight.words import commands, installs
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

_PACKAGE: Final = re.compile(r"([A-Za-z][\w.-]*)(?:\[[^]]*\])?\s*(==\s*([\w.+!-]+)|@|$|[<>~!=])")
_FULL: Final = "6.6 GB"
_IMAGE_PYTHON: Final = "3.10"
_LAST_FOR_3_10: Final = {
    "contourpy": "1.3.2", "filelock": "4.1.0", "flax": "0.10.7", "jax": "0.6.2", "jaxlib": "0.6.2",
    "networkx": "3.4.2", "numpy": "2.2.6", "pandas": "2.3.3", "regex": "2026.9.29", "scikit-learn": "1.7.2",
    "scipy": "1.15.3", "transformers": "5.20.2",
}  # fmt: skip
"""The last release of each that a package index offers to Python 3.10, asked on 2026-11-23."""


@rule("unpinned-torch", Level.WARN)
def unpinned_torch(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for `torch` without a version: it brings the CUDA build, gigabytes that a TPU machine has no use for.

    In the setup, shell scripts and lists of requirements. A version or an index of CPU builds is fine.
    """
    message = f"torch without a version brings the CUDA build (up to {_FULL}) to each machine"
    fix = "pin it, for example torch==2.13.0, or name an index of CPU builds"
    for where, words in _all_installs(spec, facts):
        cpu = any("/cpu" in word for word in words)
        if not cpu and any(found.name == "torch" and not found.pin for found in _packages(where, words)):
            yield Hit(where, message, fix)
    chosen = {line.file for line in facts.lines if "/cpu" in line.text}
    for found in facts.requirements:
        if found.name == "torch" and not found.pin and found.list not in chosen:
            yield Hit(found.where, message, fix)


@rule("torch-xla-pair", Level.WARN)
def torch_xla_pair(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """Look for torch and torch_xla of different minor versions: the import fails with an undefined symbol."""
    lists: dict[str, list[Requirement]] = {}
    for found in facts.requirements:
        lists.setdefault(found.list, []).append(found)
    for where, words in _all_installs(spec, facts):
        lists.setdefault(where, []).extend(_packages(where, words))
    for together in lists.values():
        torch, xla = (
            next((f for f in together if f.name == name and f.pin), None) for name in ("torch", "torch-xla")
        )
        if torch and xla and numbers(torch.pin)[:2] != numbers(xla.pin)[:2]:
            message = f"torch {torch.pin} with torch_xla {xla.pin}: undefined symbol at import"
            yield Hit(xla.where, message, f"use torch=={xla.pin} with it")


@rule("python-pin", Level.WARN)
def python_pin(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for pins that the image's Python 3.10 cannot have: pip finds "no matching distribution" on the TPU.

    By a table of November 2026 with the last release for 3.10 of the packages that training jobs pin most.
    A pin with an environment marker is left alone; so is a job on the VM, or one whose `job.python` is newer.
    """
    python = spec.job.python or _IMAGE_PYTHON
    if spec.job.run_on != "tpu" or numbers(python)[:2] > numbers(_IMAGE_PYTHON):
        return
    named = (found for where, words in _all_installs(spec, facts) for found in _packages(where, words))
    for found in (*facts.requirements, *named):
        last = _LAST_FOR_3_10.get(found.name)
        if last and found.pin and not found.conditional and numbers(found.pin) > numbers(last):
            whose = "job.python" if spec.job.python else "the TPU image's Python"
            yield Hit(
                found.where,
                f"{found.name}=={found.pin} needs Python 3.11 or newer; {whose} is {python}",
                f'write job.python: "3.12", or pin {found.name}=={last} with ; python_version < "3.11"',
            )


def requirement(where: str, text: str) -> Requirement | None:
    """Return the package that one word or line asks for, or None for a flag, a path or an address."""
    bare = text.partition(" #")[0].partition(";")[0].strip()
    found = _PACKAGE.match(bare)
    if not found or bare.startswith(("-", ".", "/")) or "://" in bare.partition("@")[0]:
        return None
    pin = found[3] or ("direct" if found[2] == "@" else "")
    conditional = ";" in text.partition(" #")[0]
    return Requirement(where, re.sub(r"[-_.]+", "-", found[1]).lower(), pin, conditional)


def _all_installs(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, tuple[str, ...]]]:
    for where, text in commands(spec, facts):
        for words in installs(text):
            yield where, words


def _packages(where: str, words: tuple[str, ...]) -> list[Requirement]:
    found = (requirement(where, word) for word in words)
    return [package for package in found if package]
