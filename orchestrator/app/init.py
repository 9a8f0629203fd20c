"""Write a first deployment file, copy a recipe, or convert another tool's file."""

import functools
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.advice.check.findings import SourceFacts
from orchestrator.advice.check.needs import FOR_TPU, missing_packages
from orchestrator.app.source.source_facts import gather
from orchestrator.config.document import MAX_BYTES
from orchestrator.config.load import FILE_NAME, read
from orchestrator.config.others.conversion import Conversion
from orchestrator.config.others.recognise import convert
from orchestrator.config.schema import SCHEMA_FILE, json_schema
from orchestrator.config.starter import RECIPES, init_text
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.suggest import did_you_mean, join
from orchestrator.errors import UsageError

REQUIREMENTS = "requirements.txt"
CHECKPOINT_DIR = "TPUCTL_CHECKPOINT_DIR"
_USUAL = ("train.py", "main.py", "run.py")
_WHERE_TO_SAVE = tuple(
    f"--{name}{joint}{last}" if last else f"--{name}"
    for name, last in (
        ("out", ""), ("output", ""), ("output", "dir"), ("out", "dir"), ("checkpoint", "dir"), ("ckpt", "dir"),
        ("save", "dir"), ("model", "dir"), ("workdir", ""), ("logdir", ""),
    )
    for joint in ("_", "-")
)  # fmt: skip
"""Flags of a program that take the folder for its checkpoints, the most telling first."""


@dataclass(frozen=True)
class FirstFiles:
    """
    The paths of the deployment file and of its schema, and the deployment in it.

    *setup_to_check* is the setup that the file only shows as a comment, empty when there is nothing to decide.
    *runs_example* means that no program was found, so that the file names one to be written.
    """

    file: Path
    schema: Path
    spec: Spec
    runs_example: bool
    setup_to_check: str = ""


def write_first_files(
    folder: Path, recipe: str | None, name: str | None, *, everything: bool = False
) -> FirstFiles:
    """
    Write a commented deployment file and its schema, or copy *recipe*; return what was written.

    With *everything* the file shows all settings, not only those of a first job.
    """
    schema = json.dumps(json_schema(), indent=2) + "\n"
    to_check = ""
    if recipe is None:
        text, to_check = _for_what_is_there(folder, name or _name_of(folder), everything=everything)
        files = {FILE_NAME: text.encode()}
    else:
        files = _copies(_recipe_folder(recipe))
        # In a checkout the schema is among the documentation; a copy gets its own beside the file.
        text = re.sub(
            r"^(# yaml-language-server: \$schema=).*", rf"\1{SCHEMA_FILE}", files[FILE_NAME].decode()
        )
        files[FILE_NAME] = _renamed(text.encode(), name)
    files[SCHEMA_FILE] = schema.encode()
    # Validated before writing, so that a wrong name leaves no half project behind. Without the environment's
    # variables, since the file must be valid by itself.
    spec = read(files[FILE_NAME], FILE_NAME, environ={})
    _write(folder, files)
    example = spec.job.command == RECIPES["blank"]["job.command"] and not (folder / "train.py").is_file()
    return FirstFiles(folder / FILE_NAME, folder / SCHEMA_FILE, spec, example, to_check)


def _for_what_is_there(folder: Path, name: str, *, everything: bool) -> tuple[str, str]:
    """Return the first deployment file, with what *folder* calls for, and the setup that is to be decided."""
    first = functools.partial(init_text, name, everything=everything)
    setup = f"pip install -r {REQUIREMENTS}" if (folder / REQUIREMENTS).is_file() else ""
    try:
        facts = gather(folder)
    except UsageError:
        # Not there yet, or too large to be pushed, which `plan` says better.
        return first(setup=setup), ""
    command = _command(facts)
    if command:
        first = functools.partial(first, command=command, command_comment=_comment(command))
    text = first(setup=setup)
    missing = None if setup else missing_packages(read(text.encode(), FILE_NAME, environ={}), facts)
    if missing is None or missing.installs:
        return text, ""
    for_tpu = sorted(FOR_TPU.keys() & missing.where.keys())
    questions = [
        f"Which package has the module {name}, imported in {where}? Install it here too."
        for name, where in sorted(missing.strange.items())
    ]
    if for_tpu:
        questions.insert(0, f"Is this the build of {join(for_tpu, 'and')} for your TPU and its Python?")
        return first(setup_comment=" ".join(questions), setup_to_check=missing.command), missing.command
    if missing.where:
        return first(setup=missing.command, setup_comment=" ".join(questions)), ""
    if not questions:
        return text, ""
    unknown = "pip install ..."
    return first(setup_comment=" ".join(questions), setup_to_check=unknown), unknown


def _comment(command: str) -> str:
    """Return where the command is from, for the file."""
    program = next(word for word in shlex.split(command)[1:])
    usual = f"{program} is here" if program in _USUAL else f"{program} is the only program here"
    return f"A guess: {usual}."


def _command(facts: SourceFacts) -> str:
    """Return the command that runs the only program of the folder; empty when it is not clear which one."""
    programs = {code.file: code for code in facts.code if "/" not in code.file and _is_program(code.file)}
    chosen = next((file for file in _USUAL if file in programs), None)
    if chosen is None and len(programs) == 1:
        chosen = next(iter(programs))
    if chosen is None:
        return ""
    start = f"python3 {shlex.quote(chosen)}"
    if CHECKPOINT_DIR in facts.variables:
        return start
    asked = {
        word
        for call in programs[chosen].calls
        if call.method in ("add_argument", "option", "DEFINE_string")
        for word in call.args
        if isinstance(word, str)
    }
    flag = next((flag for flag in _WHERE_TO_SAVE if flag in asked), None)
    return f'{start} {flag} "${CHECKPOINT_DIR}"' if flag else start


def _is_program(file: str) -> bool:
    return not file.startswith(("test_", "_")) and file not in ("setup.py", "conftest.py")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files, or none if one of them exists. Raise UsageError."""
    # lexists: writing through a dangling link would create its target.
    # The deployment file first: it is what the user knows.
    there = sorted(
        (path for path in files if os.path.lexists(folder / path)), key=lambda path: path != FILE_NAME
    )
    if there:
        raise UsageError(
            f"{folder / there[0]} exists already", hint="choose another folder, or remove it first",
            changed="nothing was written", code="TPU-114",
        )  # fmt: skip
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        # Exclusive, so that a file that appeared since the check is not overwritten.
        with (folder / path).open("xb") as file:
            file.write(data)


def write_converted(folder: Path, other: Path, name: str | None) -> tuple[Path, Conversion]:
    """
    Convert *other*, a file of another tool, to a deployment file; return its path and the conversion.

    Raise UsageError if *other* is unreadable or of an unknown tool, or if *folder* has a deployment file.
    """
    try:
        # Reading a device or a pipe might never end.
        if not other.is_file():
            raise UsageError(
                f"{other} is not a file", hint="name the other tool's file", changed="nothing was written",
                code="TPU-112",
            )  # fmt: skip
        with other.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {other}: {error.strerror}", hint="check its name and permissions",
            changed="nothing was written", code="TPU-112",
        ) from error  # fmt: skip
    found = convert(raw, str(other), name or _name_of(folder), keep_name=name is None)
    schema = json.dumps(json_schema(), indent=2) + "\n"
    _write(folder, {FILE_NAME: found.text.encode(), SCHEMA_FILE: schema.encode()})
    return folder / FILE_NAME, found


def examples_folder() -> Path:
    """Return the folder of the examples: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent / "examples"


def _recipe_folder(recipe: str) -> Path:
    known = sorted(path.parent.name for path in examples_folder().glob("*/tpuctl.yaml"))
    if recipe not in known:
        raise UsageError(
            f"there is no recipe {recipe!r}",
            hint=did_you_mean(recipe, known) or f"choose one of {', '.join(known)}",
            changed="nothing was written", code="TPU-113",
        )  # fmt: skip
    return examples_folder() / recipe


def _copies(example: Path) -> dict[str, bytes]:
    """Return an example's files by their relative path."""
    files = (p for p in sorted(example.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return {str(path.relative_to(example)): path.read_bytes() for path in files}


def _renamed(text: bytes, name: str | None) -> bytes:
    """Return the deployment file's text with *name* in it."""
    # Only at the start of a line, so that a nested `name:` stays.
    return text if name is None else re.sub(rb"(?m)^name:.*$", b"name: " + name.encode(), text, count=1)


def _name_of(folder: Path) -> str:
    """Return a valid deployment name derived from the folder's name."""
    # At most 40 characters: names of machines and the bucket are derived from it and have limits too.
    base = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")[:40].rstrip("-")
    return base if re.match(r"[a-z]", base) else "my-model"
