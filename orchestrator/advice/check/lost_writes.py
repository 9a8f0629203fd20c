"""Check what is written to the disk of a TPU, which is lost in a preemption."""

from collections.abc import Iterator
from typing import Final

from orchestrator.advice.check.code import Call
from orchestrator.advice.check.findings import RawFinding, SourceFacts, commands, flag, is_lost, rule
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec

_VARIABLE: Final = "TPUCTL_CHECKPOINT_DIR"
_SAVE_FLAGS: Final = (
    "--output_dir", "--output-dir", "--save_dir", "--save-dir", "--checkpoint_dir", "--checkpoint-dir",
    "--ckpt_dir", "--ckpt-dir",
)  # fmt: skip
_SAVERS: Final = {
    "torch.save": ("f", 1), "torch_xla.core.xla_model.save": ("file_or_path", 1), "numpy.save": ("file", 0),
    "numpy.savez": ("file", 0), "joblib.dump": ("filename", 1),
}  # fmt: skip
_SAVING_METHODS: Final = {
    "save_pretrained": "save_directory", "save_weights": "filepath", "save_checkpoint": "path",
    "save_model": "output_dir",
}  # fmt: skip
_SAVING_WORDS: Final = ("output_dir", "checkpoint_dir", "ckpt_dir", "save_dir", "backup_dir")
_PERSONAL: Final = ("/tmp/", "/var/tmp/", "/home/", "/root/", "~")  # noqa: S108 - looked for, not used
_WRITERS: Final = (
    "torch.utils.tensorboard.SummaryWriter", "torch.utils.tensorboard.writer.SummaryWriter",
)  # fmt: skip
_TF: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")
_WRITE_BELOW: Final = f'write below "${_VARIABLE}", which the agent commits to the bucket'


@rule("checkpoint-dir-unused", Level.WARN)
def checkpoint_dir_unused(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for jobs in which nothing reads TPUCTL_CHECKPOINT_DIR: their checkpoints are not seen by the agent.

    It reads the command, the setup, the environment and all programs of the source folder. Silent when a
    program could not be read, and when `job.checkpoint.dir` is a path of your own. With `dir: bucket`,
    TPUCTL_BUCKET does as well.
    """
    # An unread program may be the one that reads it: rather no finding than a false alarm.
    if spec.job.checkpoint.dir not in ("local", "bucket") or facts.unread:
        return
    texts = "\n".join((spec.job.command, spec.job.setup, *spec.job.env.values()))
    # Programs that add folders of their own to a base get the bucket itself.
    names = (_VARIABLE, "TPUCTL_BUCKET") if spec.job.checkpoint.dir == "bucket" else (_VARIABLE,)
    if not any(name in texts or name in facts.variables for name in names):
        message = f"nothing in the job reads {_VARIABLE}: a preemption loses every step"
        hint = (
            f"save to the folder named in the variable {_VARIABLE} and load from there (in Python "
            f'os.environ["{_VARIABLE}"]), or make the folder that the program uses a symbolic link to it'
        )
        yield RawFinding("job.command", message, hint)


@rule("save-elsewhere", Level.WARN)
def save_elsewhere(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for a command that saves to a local folder that the agent does not commit (`--output_dir ./out`).

    In the command and the shell scripts that it names; only for jobs on the TPU: the VM keeps its disk.
    """
    if spec.job.run_on != "tpu":
        return
    for where, text in commands(spec, facts):
        run = where == "job.command" or where.partition(":")[0] in spec.job.command
        path = flag(text, *_SAVE_FLAGS) if run else None
        if path and is_lost(path, spec.job.checkpoint.dir):
            yield RawFinding(where, f"saves to {path[:40]}, which is lost with the TPU", _WRITE_BELOW)


@rule("write-lost", Level.WARN, Level.NOTE)
def write_lost(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for scripts that save to a literal path below /tmp, /home, /root or ~ of a TPU machine.

    A model, array or checkpoint is a warning, any other file opened for writing a note. Caches may lie there.
    """
    if spec.job.run_on != "tpu":
        return
    for code in facts.code:
        for call in code.calls:
            path, saved = _target(call)
            if (
                isinstance(path, str)
                and path.startswith(_PERSONAL)
                and is_lost(path, spec.job.checkpoint.dir)
            ):
                message = f"{call.method or 'a call'} writes to {path[:40]}, which is lost with the TPU"
                yield RawFinding(code.where(call.line), message, _WRITE_BELOW, None if saved else Level.NOTE)


@rule("summary-writer-gs", Level.WARN)
def summary_writer_gs(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for PyTorch's SummaryWriter on gs:// without TensorFlow: it cannot append there, and says nothing.

    Measured: 20 scalars became a file of 42 bytes.
    """
    if facts.uses("tensorflow") or any(found.name in _TF for found in facts.requirements):
        return
    if any(f"{name}==" in spec.job.setup or f" {name} " in f"{spec.job.setup} " for name in _TF):
        return
    for code, call in facts.calls(_WRITERS):
        folder = call.value("log_dir", 0)
        if isinstance(folder, str) and folder.startswith("gs://"):
            message = "SummaryWriter without TensorFlow loses data on gs:// (20 scalars became 42 bytes)"
            yield RawFinding(
                code.where(call.line), message, "write to a local folder and copy it, or install TensorFlow"
            )


@rule("bucket-not-a-folder", Level.WARN)
def bucket_not_a_folder(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """Look for gs:// paths given to what writes local files only: Hugging Face's Trainer and fairseq."""
    hint = f'save to "${_VARIABLE}" with job.checkpoint.dir: local; the agent copies it to the bucket'
    for where, text in commands(spec, facts):
        path = flag(text, "--output_dir", "--output-dir") if "run_" in text else None
        path = flag(text, "--save-dir") if "fairseq-train" in text else path
        if path is not None and path.startswith("gs://"):
            yield RawFinding(
                where, f"{path[:40]} would become a folder on the machine; nothing reaches the bucket", hint
            )
    for code, call in facts.calls(
        {"transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"}
    ):
        folder = call.value("output_dir", 0)
        if isinstance(folder, str) and folder.startswith("gs://"):
            message = f"{folder[:40]} would become a folder on the machine; nothing reaches the bucket"
            yield RawFinding(code.where(call.line), message, hint)


def _target(call: Call) -> tuple[object, bool]:
    """Return where a call writes to (None if it does not write), and whether it saves something trained."""
    if call.name in _SAVERS:
        return call.value(*_SAVERS[call.name]), True
    if call.method in _SAVING_METHODS:
        return call.value(_SAVING_METHODS[call.method], 0), True
    if call.name in ("open", "io.open", "tensorflow.io.gfile.GFile"):
        mode = call.value("mode", 1)
        writes = isinstance(mode, str) and bool(set(mode) & set("wax"))
        return (call.value("file", 0) if writes else None), False
    return next((path for word in _SAVING_WORDS if (path := call.keywords.get(word)) is not None), None), True
