"""Write a first deployment file, a copy of an example, or what a file of another tool becomes."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config.document import LARGEST_BYTES
from orchestrator.config.load import FILE_NAME, read
from orchestrator.config.others.conversion import Conversion
from orchestrator.config.others.recognise import convert
from orchestrator.config.schema import SCHEMA_FILE, json_schema
from orchestrator.config.starter import init_text
from orchestrator.domain.suggest import did_you_mean
from orchestrator.errors import UsageError

REQUIREMENTS = "requirements.txt"


def write_first_files(folder: Path, recipe: str | None, name: str | None) -> Path:
    """Write a commented deployment file with its schema, or the files of *recipe*; return the deployment file."""
    schema = json.dumps(json_schema(), indent=2) + "\n"
    if recipe is None:
        listed = (folder / REQUIREMENTS).is_file()
        text = init_text(name or _name_of(folder), setup=f"pip install -r {REQUIREMENTS}" if listed else "")
        files = {FILE_NAME: text.encode()}
    else:
        files = _copies(_example(recipe))
        # In a checkout the schema lies among the pages; a copy has its own beside it.
        text = re.sub(
            r"^(# yaml-language-server: \$schema=).*", rf"\1{SCHEMA_FILE}", files[FILE_NAME].decode()
        )
        files[FILE_NAME] = _renamed(text.encode(), name)
    files[SCHEMA_FILE] = schema.encode()
    # Before anything is written: a wrong name must not leave half a project behind. Without variables of
    # the environment, for the file has to be right by itself.
    read(files[FILE_NAME], FILE_NAME, environ={})
    _write(folder, files)
    return folder / FILE_NAME


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all of the files, or none where one of them is there already."""
    # A link that leads nowhere yet is there too: what it leads to would be written.
    there = sorted(path for path in files if os.path.lexists(folder / path))
    if there:
        raise UsageError(
            f"{folder / there[0]} exists already", hint="choose another folder, or remove it first",
            changed="nothing was written", code="TPU-114",
        )  # fmt: skip
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: a file that appeared since the check above is not overwritten.
        with (folder / path).open("xb") as file:
            file.write(data)


def write_converted(folder: Path, other: Path, name: str | None) -> tuple[Path, Conversion]:
    """
    Write the deployment file that *other*, a file of another tool, becomes; return it and what became of what.

    Raise UsageError where *other* cannot be read, is of no known tool, or *folder* has a deployment file.
    """
    try:
        # A device or a pipe might never end.
        if not other.is_file():
            raise UsageError(f"{other} is not a file", changed="nothing was written", code="TPU-112")
        with other.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
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
    """Return where the examples lie: in the wheel's package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent / "examples"


def _example(recipe: str) -> Path:
    known = sorted(path.parent.name for path in examples_folder().glob("*/tpuctl.yaml"))
    if recipe not in known:
        raise UsageError(
            f"there is no recipe {recipe!r}",
            hint=did_you_mean(recipe, known) or f"choose one of {', '.join(known)}",
            changed="nothing was written", code="TPU-113",
        )  # fmt: skip
    return examples_folder() / recipe


def _copies(example: Path) -> dict[str, bytes]:
    """Return an example's files by their path inside it."""
    files = (p for p in sorted(example.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return {str(path.relative_to(example)): path.read_bytes() for path in files}


def _renamed(text: bytes, name: str | None) -> bytes:
    """Return the deployment file with another name in it."""
    # Anchored to the beginning of a line: `name:` of a nested mapping stays.
    return text if name is None else re.sub(rb"(?m)^name:.*$", b"name: " + name.encode(), text, count=1)


def _name_of(folder: Path) -> str:
    """Return a deployment name made from the folder's name."""
    # 40 characters at most: names of machines and bucket are made of this one, and have limits too.
    base = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")[:40].rstrip("-")
    return base if re.match(r"[a-z]", base) else "my-model"
