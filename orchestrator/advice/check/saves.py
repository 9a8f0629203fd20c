"""Check whether the program saves at all, where, and whether its saves can count."""

import re
from collections.abc import Iterator
from math import exp
from pathlib import PurePosixPath
from typing import Final

from orchestrator.advice.check.code import Call
from orchestrator.advice.check.findings import RawFinding, SourceFacts, commands, rule
from orchestrator.advice.check.needs import is_unknown
from orchestrator.advice.check.program import Program, program
from orchestrator.contract.interval import best_save_interval
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec

_DIR: Final = "TPUCTL_CHECKPOINT_DIR"
_MARKER: Final = "COMPLETE"
_SAVES: Final = re.compile(
    r"save|dump|checkpoint|ckpt|backup|export|seriali|store|trainer|persist|snapshot|upload|write|tofile|"
    r"estimator|cli$|to_(?:csv|parquet|json|pickle|hdf|disk|file)|copy|download|subprocess|system$|popen|runpy",
    re.IGNORECASE,
)
"""Names of calls that may save, directly or indirectly; with one of these no finding is reported."""
_LOADS: Final = re.compile(
    r"load|restore|resum|read|latest|checkpoint|ckpt|glob|listdir|scandir|walk|iterdir|from_|fromfile|memmap|open|"
    r"trainer|deseriali|download|copy|subprocess|system$|popen|runpy|cli$",
    re.IGNORECASE,
)
"""Names of calls that may load a save, or look for one; with one of these no finding is reported."""
_MODELS: Final = {
    "torch.save": ("f", 1), "torch_xla.core.xla_model.save": ("file_or_path", 1),
    "safetensors.torch.save_file": ("filename", 1), "safetensors.numpy.save_file": ("filename", 1),
    "safetensors.flax.save_file": ("filename", 1),
}  # fmt: skip
_ARRAYS: Final = (
    "numpy.save", "numpy.savez", "numpy.savez_compressed", "joblib.dump", "pickle.dump", "jax.numpy.save",
)  # fmt: skip
_OWN_LOOP: Final = (
    "transformers", "trl", "lightning", "pytorch_lightning", "keras", "tensorflow", "accelerate", "fairseq",
    "kauldron", "levanter", "orbax", "subprocess", "runpy",
)  # fmt: skip
"""Packages with a training loop or a way to save of their own."""
_METHODS: Final = {
    "save_pretrained": ("save_directory", 0), "save_weights": ("filepath", 0),
    "save_state": ("output_dir", 0),
    "TrainingArguments": ("output_dir", 0), "Seq2SeqTrainingArguments": ("output_dir", 0),
    "SFTConfig": ("output_dir", 0), "ModelCheckpoint": ("filepath", 0), "BackupAndRestore": ("backup_dir", 0),
    "save_checkpoint": ("ckpt_dir", 0),
}  # fmt: skip


@rule("no-save", Level.WARN)
def no_save(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for programs in which nothing saves: no call that saves, writes or dumps, in no file that runs.

    The files of the source folder that the command starts, and what they import there. Silent when one of
    them could not be found or read, or imports a package that is not known here and may save by itself.
    """
    job = program(spec, facts)
    # Silent at the least doubt: after one false alarm, people stop reading findings.
    if not job.whole or _may_save(job) or any(is_unknown(one, code, facts) for code, one in job.imports()):
        return
    others = len(job.code) - 1
    files = job.code[0].file if not others else f"{len(job.code)} files"
    message = f"nothing in {files} saves anything: what is trained is lost with the TPU"
    yield RawFinding("job.command", message, f'save to "${_DIR}" while it trains, and at the end')


@rule("no-load", Level.WARN)
def no_load(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for programs that save a model and in which nothing loads or looks for one: each preemption costs all.

    In the files that run. Silent without a loop, where anything is loaded, which may be the data, where a
    framework may resume by itself, and for format outputs.
    """
    job = program(spec, facts)
    if spec.job.checkpoint.format == "outputs" or not job.whole:
        return
    if any(is_unknown(one, code, facts) or one.name.startswith(_OWN_LOOP) for code, one in job.imports()):
        return
    calls = [(code, call) for code in job.code for call in code.calls]
    saving = next(((code, call) for code, call in calls if _saves_a_model(call)), None)
    # A program without a loop trains nothing: it may convert a model.
    if (
        saving is None
        or not any(call.in_loop for _, call in calls)
        or any(_LOADS.search(call.method or call.name) and not _opens_to_write(call) for _, call in calls)
    ):
        return
    code, call = saving
    message = f"{call.method} saves, and nothing loads: each preemption begins again at step 0"
    yield RawFinding(code.where(call.line), message, f'at the start, load the newest save from "${_DIR}"')


@rule("late-save", Level.WARN)
def late_save(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for programs that train in a loop and save only after it: a preemption then loses all of it.

    In the files that run: each call that saves comes after a loop of its own function, and neither that call
    nor that function is in a loop. Silent where a framework may save by itself, and for format outputs.
    """
    job = program(spec, facts)
    if spec.job.checkpoint.format == "outputs" or not job.whole:
        return
    if any(is_unknown(one, code, facts) or one.name.startswith(_OWN_LOOP) for code, one in job.imports()):
        return
    saving = [(c, call) for c in job.code for call in c.calls if _saves_a_model(call)]
    others = any(
        _SAVES.search(call.method) and not _saves_a_model(call) for c in job.code for call in c.calls
    )
    if not saving or others:
        return
    for code, call in saving:
        before = [
            one for one in code.calls if one.in_loop and one.scope == call.scope and one.line < call.line
        ]
        if call.in_loop or not before or _is_repeated(job, call.within, 0):
            return
    code, call = saving[0]
    message = f"{call.method} comes after the training only: a preemption before that loses all of it"
    yield RawFinding(
        code.where(call.line), message, f'save below "${_DIR}" in the loop too, and go on from there'
    )


@rule("relative-save", Level.WARN)
def relative_save(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for models and checkpoints that are saved to a folder beside the code (`out_dir = "out"`).

    In the files that run. A path that a variable holds counts only when the command names no
    TPUCTL_CHECKPOINT_DIR, which may replace it. Arrays and pictures do not count.
    """
    text = "\n".join(text for _, text in commands(spec, facts))
    if spec.job.run_on != "tpu" or re.search(rf"\bcd\s.*{_DIR}", text) or any(facts.calls({"os.chdir"})):
        return
    names_folder = _DIR in text or any(_DIR in value for value in spec.job.env.values())
    for code in program(spec, facts).code:
        for call in code.calls:
            keyword, position = _path_argument(call)
            path = call.value(keyword, position) if keyword else None
            plain = keyword in call.plain or position in call.plain
            if isinstance(path, str) and _is_beside(path) and (plain or not names_folder):
                message = f"{call.method} writes to {path[:40]} beside the code, lost with the TPU"
                yield RawFinding(
                    code.where(call.line), message, f'write below "${_DIR}", or set job.checkpoint.dir'
                )


@rule("backup-deleted", Level.STOP)
def backup_deleted(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for Keras's BackupAndRestore without `delete_checkpoint=False`: it deletes its save when fit() ends.

    Then the last save is gone when the job is done, and the job starts again from an older one, without end.
    """
    for code, call in facts.calls(methods={"BackupAndRestore"}):
        if not call.spread and "keras" in call.name and call.value("delete_checkpoint", 3) in (None, True):
            message = "BackupAndRestore deletes its checkpoint when fit() ends, so the job is never done"
            yield RawFinding(code.where(call.line), message, "add delete_checkpoint=False")


@rule("marker-never-written", Level.STOP)
def marker_never_written(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for format marker where the program saves, but nowhere names the file COMPLETE that a save needs.

    Then no checkpoint ever counts. Silent for another `marker`, which a framework may write by itself.
    """
    saving = spec.job.checkpoint
    job = program(spec, facts)
    if saving.format != "marker" or saving.marker != _MARKER or not job.whole or not _may_save(job):
        return
    # Only files that run: the schema beside the deployment file names the marker too.
    shell = [*spec.job.env.values(), *(text for _, text in commands(spec, facts))]
    texts = (*shell, *(text for code in facts.code for text in code.texts))
    if any(is_unknown(one, code, facts) for code, one in job.imports()):
        return
    if not any(_MARKER in text for text in texts):
        message = (
            f"format marker counts a save when the file {_MARKER} is in its folder, and nothing writes it"
        )
        yield RawFinding(
            "job.checkpoint.format", message,
            f"write each save to a folder of its own and {_MARKER} last, or name your framework's format",
        )  # fmt: skip


def _may_save(job: Program) -> bool:
    return any(
        _SAVES.search(call.method or call.name) or _opens_to_write(call) for c in job.code for call in c.calls
    )


def _is_repeated(job: Program, function: str, depth: int) -> bool:
    """Return whether a function is called in a loop, or by one that is; a class or a callback may be as well."""
    if not function:
        return False
    callers = [call for code in job.code for call in code.calls if call.method == function]
    return (
        # Without a known caller it may be a callback, which a framework calls in its loop.
        not callers
        or depth > 8
        or any(call.in_loop or _is_repeated(job, call.within, depth + 1) for call in callers)
    )


def _saves_a_model(call: Call) -> bool:
    return call.name in (*_MODELS, *_ARRAYS) or call.method in (
        "save_pretrained",
        "save_weights",
        "save_model",
    )


def _opens_to_write(call: Call) -> bool:
    mode = call.value("mode", 2 if call.method == "memmap" else 1)
    if mode is None:
        return call.method == "memmap"  # Its default is r+.
    opens = call.method in ("open", "GFile", "memmap")
    return opens and (not isinstance(mode, str) or bool(set(mode) & set("wax+")))


def _path_argument(call: Call) -> tuple[str, int]:
    """Return keyword and position of the path argument of a call that saves; empty for another call."""
    if call.name in _MODELS:
        return _MODELS[call.name]
    found = _METHODS.get(call.method, ("", -1))
    # Keras and Lightning both have a ModelCheckpoint.
    return ("dirpath", 0) if call.method == "ModelCheckpoint" and "lightning" in call.name else found


def _is_beside(path: str) -> bool:
    outside = ("/", "~", "$", "-", "..")
    return (
        bool(path.strip())
        and "://" not in path
        and not path.startswith(outside)
        and str(PurePosixPath(path)) != "."
    )


LIFETIMES: Final = {"bad": 0.3 * 3600, "middling": 4 * 3600.0, "good": 12 * 3600.0}
"""Mean seconds between preemptions of a spot TPU, by zone: assumptions, not measured (docs/facts.md 5.4)."""
WORTH_SAYING: Final = 0.05
"""Share of the time lost beyond the best interval from which on a finding is reported."""


@rule("save-interval", Level.WARN, Level.NOTE)
def save_interval(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for saves that are too rare (each preemption loses work) or too frequent (each save takes time).

    Best is Young's and Daly's sqrt(2 x save pause x mean lifetime). A zone's mean lifetime is not known, so
    three are shown: 0.3 h (bad), 4 h and 12 h (good). Told from 5 % of the time lost beyond the best; a note
    when only in a bad zone. Needs `job.checkpoint.every`; more exact with `job.checkpoint.save_pause`.
    """
    every, pause = spec.job.checkpoint.every, spec.job.checkpoint.save_pause or 0.0
    if every is None or every == "auto" or not spec.tpu.spot:
        return
    worse = {name: _beyond_best(every, pause, lifetime) for name, lifetime in LIFETIMES.items()}
    if max(worse.values()) < WORTH_SAYING:
        return
    shares = ", ".join(
        f"{lost_share(every, pause, lifetime):.0%} at {lifetime / 3600:g} h"
        for lifetime in LIFETIMES.values()
    )
    message = f"a save every {every} loses {shares} of mean lifetime of a TPU"
    best = best_save_interval(pause, LIFETIMES["middling"]) if pause else 0.0
    hint = (
        f"save every {best / 60:.1f} min (best at 4 h), or write auto"
        if pause
        else "save more often; state save_pause for a figure"
    )
    level = Level.NOTE if worse["middling"] < WORTH_SAYING and worse["good"] < WORTH_SAYING else Level.WARN
    yield RawFinding("job.checkpoint.every", message, hint, level)


def lost_share(every: float, save_pause: float, lifetime: float) -> float:
    """
    Return the share of the time spent on saves and repeated work, for random interruptions (Daly's full form).

    Restarts are not included, because they do not depend on the interval.
    """
    # exp() overflows a float beyond 709.
    exponent = min((every + save_pause) / lifetime, 700.0)
    return 1 - (every / lifetime) / (exp(exponent) - 1) if exponent > 0 else 0.0


def _beyond_best(every: float, save_pause: float, lifetime: float) -> float:
    best = lost_share(best_save_interval(save_pause, lifetime), save_pause, lifetime) if save_pause else 0.0
    return lost_share(every, save_pause, lifetime) - best
