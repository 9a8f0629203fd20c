"""Check packages that have the wrong build, conflict, or no longer contain what the code uses."""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.check.findings import (
    RawFinding,
    Requirement,
    SourceFacts,
    commands,
    installs,
    numbers,
    rule,
)
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.source.exposed_services import joined
from orchestrator.domain.spec import Spec

_PACKAGE: Final = re.compile(r"([A-Za-z][\w.-]*)(?:\[[^]]*\])?\s*(==\s*([\w.+!-]+)|@|$|[<>~!=])")
_APT: Final = re.compile(r"\b(apt(?:-get)?) (?:-\S+ )*install\b")
_CONDA: Final = re.compile(r"\b(conda|mamba|micromamba) (?:env )?(?:install|create)\b")
_FULL: Final = "6.6 GB"
_IMAGE_PYTHON: Final = "3.10"
# Only packages that TPU jobs often pin; others are not judged.
_LAST_FOR_3_10: Final = {
    "contourpy": "1.3.2", "filelock": "4.1.0", "flax": "0.10.7", "jax": "0.6.2", "jaxlib": "0.6.2",
    "networkx": "3.4.2", "numpy": "2.2.6", "pandas": "2.3.3", "regex": "2026.9.29", "scikit-learn": "1.7.2",
    "scipy": "1.15.3", "transformers": "5.20.2",
}  # fmt: skip
"""Last release of each for Python 3.10, according to the package index on 2026-11-23."""


@rule("unpinned-torch", Level.WARN)
def unpinned_torch(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for `torch` without a version: it brings the CUDA build, gigabytes that a TPU machine has no use for.

    In the setup, shell scripts and lists of requirements. A version or an index of CPU builds is fine.
    """
    message = f"torch without a version brings the CUDA build (up to {_FULL}) to each machine"
    hint = "pin it, for example torch==2.13.0, or name an index of CPU builds"
    for where, words in _all_installs(spec, facts):
        cpu = any("/cpu" in word for word in words)
        if not cpu and any(found.name == "torch" and not found.pin for found in _packages(where, words)):
            yield RawFinding(where, message, hint)
    chosen = {line.file for line in facts.lines if "/cpu" in line.text}
    for found in facts.requirements:
        if found.name == "torch" and not found.pin and found.file not in chosen:
            yield RawFinding(found.where, message, hint)


@rule("torch-xla-pair", Level.WARN)
def torch_xla_pair(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """Look for torch and torch_xla of different minor versions: the import fails with an undefined symbol."""
    lists: dict[str, list[Requirement]] = {}
    for found in facts.requirements:
        lists.setdefault(found.file, []).append(found)
    for where, words in _all_installs(spec, facts):
        lists.setdefault(where, []).extend(_packages(where, words))
    for together in lists.values():
        torch, xla = (
            next((f for f in together if f.name == name and f.pin), None) for name in ("torch", "torch-xla")
        )
        if torch and xla and numbers(torch.pin)[:2] != numbers(xla.pin)[:2]:
            message = f"torch {torch.pin} with torch_xla {xla.pin}: undefined symbol at import"
            yield RawFinding(xla.where, message, f"use torch=={xla.pin} with it")


@rule("installed-anew", Level.NOTE)
def installed_again(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for what each new machine installs again: apt, conda, `pip install --user` and `--target`.

    Other Python packages come back from the bucket. A folder that is named in job.caches does, too.
    """
    if spec.job.run_on != "tpu":
        return
    for where, text in (("job.setup", joined(spec.job.setup)), ("job.command", joined(spec.job.command))):
        found = _APT.search(text)
        if found:
            message = f"{found[1]} installs on each new machine again"
            yield RawFinding(
                where, message, "use a Python wheel that includes the library, where there is one"
            )
        if spec.job.caches:
            continue
        away = (word for words in installs(text) for word in words)
        option = next((w for w in away if w in ("--user", "-t") or w.startswith("--target")), "")
        if option:
            message = f"pip install {option} puts packages where they are not kept for the next machine"
            yield RawFinding(where, message, "leave it out, or name the folder in job.caches")
        found = _CONDA.search(text)
        if found:
            message = f"what {found[1]} installs is not kept for the next machine"
            yield RawFinding(where, message, "name its folder in job.caches, for example /root/miniconda3")


@rule("python-pin", Level.WARN)
def python_pin(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for pins that the image's Python 3.10 cannot have: pip finds "no matching distribution" on the TPU.

    By a table of November 2026 with the last release for 3.10 of the packages that training jobs pin most.
    A pin with an environment marker is left alone; so is a job on the VM, in a container, or one whose
    `job.python` is newer.
    """
    python = spec.job.python or _IMAGE_PYTHON
    if spec.job.image or spec.job.run_on != "tpu" or numbers(python)[:2] > numbers(_IMAGE_PYTHON):
        return
    named = (found for where, words in _all_installs(spec, facts) for found in _packages(where, words))
    for found in (*facts.requirements, *named):
        last = _LAST_FOR_3_10.get(found.name)
        # A direct reference has no number; it compares as older than all and is never reported.
        if last and found.pin and not found.conditional and numbers(found.pin) > numbers(last):
            whose = "job.python" if spec.job.python else "the TPU image's Python"
            yield RawFinding(
                found.where,
                f"{found.name}=={found.pin} needs Python 3.11 or newer; {whose} is {python}",
                f'write job.python: "3.12", or pin {found.name}=={last} with ; python_version < "3.11"',
            )


def requirement(file: str, text: str, line: int = 0) -> Requirement | None:
    """Return the package that one word or line requires, or None for a flag, a path or an address."""
    bare = text.partition(" #")[0].partition(";")[0].strip()
    found = _PACKAGE.match(bare)
    if not found or bare.startswith(("-", ".", "/")) or "://" in bare.partition("@")[0]:
        return None
    pin = found[3] or ("direct" if found[2] == "@" else "")
    conditional = ";" in text.partition(" #")[0]
    return Requirement(file, re.sub(r"[-_.]+", "-", found[1]).lower(), pin, conditional, line)


def _all_installs(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, tuple[str, ...]]]:
    for where, text in commands(spec, facts):
        for words in installs(text):
            yield where, words


def _packages(where: str, words: tuple[str, ...]) -> list[Requirement]:
    found = (requirement(where, word) for word in words)
    return [package for package in found if package]


_XM: Final = "torch_xla.core.xla_model."
_RENAMED: Final = {
    f"{_XM}xrt_world_size": "torch_xla.runtime.world_size()",
    f"{_XM}get_ordinal": "torch_xla.runtime.global_ordinal()",
}
_CLASS: Final = re.compile(r"transformers\.((?:TF|Flax)[A-Z]\w*)")
_SPAWN: Final = "torch_xla.distributed.xla_multiprocessing.spawn"
_TORCH_XLA: Final = ("torch-xla",)
_TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")


@rule("removed-torch-xla", Level.WARN)
def removed_torch_xla(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for what torch_xla 2.9 no longer has: xm.xrt_world_size, xm.get_ordinal, XRT_TPU_CONFIG, nprocs=8.

    Silent where torch_xla is pinned below 2.9. XRT_TPU_CONFIG is left alone for jobs on the VM, which get it.
    """
    # Every pin must be older, because it is unknown which of two lists the machine installs.
    if facts.pinned_below((2, 9), *_TORCH_XLA):
        return
    for code in facts.code:
        for name, new in _RENAMED.items():
            if name in code.names:
                text = f"{name.rpartition('.')[2]} is gone in torch_xla 2.9"
                yield RawFinding(code.where(code.names[name]), text, f"use {new}")
    for code, call in facts.calls({_SPAWN}):
        count = call.value("nprocs", 2)
        if isinstance(count, int) and count != 1:
            text = f"nprocs={count} is a ValueError in torch_xla 2.9: only 1 or None"
            yield RawFinding(
                code.where(call.line), text, "leave nprocs out: one process for each core is the default"
            )
    for where, text in commands(spec, facts):
        found = re.search(r"xla_spawn\.py\b.*--num_cores[= ](\d+)", text)
        if found and found[1] != "1":
            said = f"--num_cores {found[1]} becomes nprocs={found[1]}, a ValueError in torch_xla 2.9"
            yield RawFinding(where, said, "start with torch_xla.launch, or leave nprocs out of xla_spawn.py")
        if "XRT_TPU_CONFIG" in text and spec.job.run_on == "tpu":
            said = "XRT_TPU_CONFIG does nothing: XRT is gone in torch_xla 2.9"
            yield RawFinding(where, said, "remove it; tpuctl sets PJRT_DEVICE=TPU")


@rule("removed-tensorflow", Level.WARN)
def removed_tensorflow(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for tf.estimator, which today's TensorFlow (2.21) no longer has, not even below tf.compat.v1.

    Silent where TensorFlow is pinned below 2.16.
    """
    if facts.pinned_below((2, 16), *_TENSORFLOW):
        return
    for code in facts.code:
        for name, line in code.names.items():
            if name.startswith(("tensorflow.estimator", "tensorflow.compat.v1.estimator")):
                yield RawFinding(
                    code.where(line),
                    f"{name.replace('tensorflow', 'tf', 1)} is gone in TensorFlow 2.21",
                    "use Keras, or pin tensorflow==1.15.5 with Python 3.7",
                )
                break


@rule("removed-transformers", Level.WARN)
def removed_transformers(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for what transformers 5 no longer has: TF and Flax classes, `from_tf`, load_tf_weights_in_bert.

    Silent where transformers is pinned below 5.
    """
    if facts.pinned_below((5,), "transformers"):
        return
    hint = "pin transformers==4.57.6, or use the PyTorch class"
    for code in facts.code:
        for name, line in code.names.items():
            found = _CLASS.match(name)
            gone = (
                found[1]
                if found
                else "load_tf_weights_in_bert"
                if name.endswith(".load_tf_weights_in_bert")
                else ""
            )
            if gone and name.startswith("transformers."):
                yield RawFinding(code.where(line), f"{gone} is gone in transformers 5", hint)
    for code, call in facts.calls(methods={"from_pretrained"}):
        if call.keywords.get("from_tf") is True:
            yield RawFinding(code.where(call.line), "from_tf=True is gone in transformers 5", hint)
