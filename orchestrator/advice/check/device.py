"""Check how the code uses the TPU: waits for results, compile flags, matrix sizes, memory of a core."""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.check.findings import RawFinding, SourceFacts, commands, rule
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec

MULTIPLE: Final = 8
"""Rows and columns that a core multiplies at once: 10 take as long as 16."""
_SIZES: Final = (
    "batch_size", "train_batch_size", "per_device_train_batch_size", "hidden_size", "intermediate_size",
    "d_model", "embed_dim", "n_embd", "max_seq_length", "block_size", "max_sentences", "tokens_per_sample",
)  # fmt: skip
_SIZE_FLAGS: Final = "|".join(
    f"--{name}" for name in sorted({*_SIZES, *(name.replace("_", "-") for name in _SIZES)})
)
_FLAG: Final = re.compile(rf"(?:^|\s)({_SIZE_FLAGS})(?:=|\s+)(\d+)(?=\s|$)")


@rule("host-sync", Level.WARN)
def host_sync(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for `.item()`, `.cpu()`, `.tolist()` or `.numpy()` at every step of a torch_xla training loop.

    The TPU waits for the host there. Below an `if` (every 100 steps) and in evaluation loops it is fine.
    """
    for code in facts.code if facts.uses("torch_xla", "torch_tpu") else ():
        if "torch" not in code.modules and "torch_xla" not in code.modules:
            continue
        for call in code.calls:
            if call.every_step and call.method in ("item", "cpu", "tolist", "numpy") and not call.args:
                message = f".{call.method}() at every step: the TPU waits for the host 1 time in each step"
                yield RawFinding(
                    code.where(call.line), message, "do it every 100 steps, or in xm.add_step_closure"
                )


@rule("jit-compile", Level.WARN)
def jit_compile(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """Look for `jit_compile=True`: it tries XLA on a CPU or GPU; on a TPU it makes trouble and is not needed."""
    for code in facts.code if facts.uses("tensorflow", "keras", "tf_keras") else ():
        for call in code.calls:
            if call.keywords.get("jit_compile") is True:
                message = "jit_compile=True: a TPU compiles by itself, and with it training may fail"
                yield RawFinding(code.where(call.line), message, "remove it for the TPU")


@rule("multiple-of-8", Level.NOTE)
def multiple_of_8(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for batch and feature sizes that are no multiple of 8: 10 costs as much as 16.

    Literals of well-known names (`batch_size`, `hidden_size`, ...) in calls, argparse defaults and command
    lines. A size of 1 is left alone.
    """
    for where, text in commands(spec, facts):
        for found in _FLAG.finditer(text):
            yield from _uneven(where, found[1], int(found[2]))
    for code in facts.code:
        if not code.modules & {"torch", "torch_xla", "tensorflow", "jax", "flax", "transformers", "keras"}:
            continue
        for call in code.calls:
            for name in _SIZES:
                yield from _uneven(code.where(call.line), name, call.keywords.get(name))
            if call.method == "add_argument" and call.args and isinstance(call.args[0], str):
                name = call.args[0].lstrip("-").replace("-", "_")
                if name in _SIZES:
                    yield from _uneven(code.where(call.line), name, call.keywords.get("default"))


def _uneven(where: str, name: str, value: object) -> Iterator[RawFinding]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 1 and value % MULTIPLE:
        up = -(-value // MULTIPLE) * MULTIPLE
        yield RawFinding(
            where,
            f"{name} {value} costs as much as {up} on the matrix unit",
            f"use {up}, or another multiple of 8",
        )


STATE_VALUES: Final = {"adam": 2, "momentum": 1, "adafactor": 0, "sgd": 0}
"""Values that an optimizer keeps for each parameter; adafactor's rows and columns are too few to count."""
_BYTES: Final = {"fp32": 4, "bf16": 2}
_GIB: Final = 2**30
# A tenth for the compiled program and for allocator overhead, which are not known before a run.
_ROOM: Final = 0.9


@rule("core-memory", Level.WARN, Level.STOP, Level.NOTE)
def core_memory(spec: Spec, catalog: Catalog, _: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for model, gradients, optimizer and batch that do not fit into one core; cores share no memory.

    v2 and v3 have two cores on a chip (8 and 16 GiB each), later ones are counted by chip. Parameters and
    optimizer alone too large: stop. With gradients and batch too large: warning; above 90 %: note. Needs
    `job.memory.params_millions`.
    """
    need, accelerator = spec.job.memory, catalog.accelerator(spec.tpu.type)
    if need.params_millions is None or accelerator is None or need.shards < 1:
        return
    room = accelerator.hbm_gib_per_chip / accelerator.devices_per_chip
    copy = need.params_millions * 1e6 * _BYTES[need.dtype] / need.shards / _GIB
    state = copy * STATE_VALUES[need.optimizer]
    batch = (need.activations_gb or 0.0) * 1e9 / _GIB
    # Twice: parameters and gradients. All figures in GiB, while the file has GB and millions.
    total = 2 * copy + state + batch
    if total <= room * _ROOM:
        return
    core = "core" if accelerator.devices_per_chip == 2 else "chip"
    parts = f"model {copy:.1f} + gradients {copy:.1f} + {need.optimizer} {state:.1f} + batch {batch:.1f}"
    message = f"{parts} = {total:.1f} GiB; a {accelerator.generation} {core} has {room:g} GiB"
    if need.activations_gb is None:
        message += " (the batch is not stated)"
    level = Level.STOP if copy + state > room else Level.WARN if total > room else Level.NOTE
    yield RawFinding(
        "job.memory", message, "split the state over cores (shards), use bf16, or a smaller batch", level
    )
