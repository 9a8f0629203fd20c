"""Write a first deployment file, or a copy of an example."""

import json
import os
import re
from pathlib import Path

from orchestrator.config.load import FILE_NAME, read
from orchestrator.config.schema import SCHEMA_FILE, json_schema
from orchestrator.config.starter import init_text
from orchestrator.domain.suggest import did_you_mean
from orchestrator.errors import UsageError

REQUIREMENTS = "requirements.txt"


def write_first_files(folder: Path, recipe: str | None, name: str | None) -> Path:
    """Write a commented deployment file with its schema, or the files of *recipe*; return the deployment file."""
    if recipe is None:
        schema = json.dumps(json_schema(), indent=2) + "\n"
        listed = (folder / REQUIREMENTS).is_file()
        text = init_text(name or _name_of(folder), setup=f"pip install -r {REQUIREMENTS}" if listed else "")
        files = {FILE_NAME: text.encode(), SCHEMA_FILE: schema.encode()}
    else:
        files = _copies(_example(recipe))
        files[FILE_NAME] = _renamed(files[FILE_NAME], name)
    # Before anything is written: a wrong name must not leave half a project behind. Without variables of
    # the environment, for the file has to be right by itself.
    read(files[FILE_NAME], FILE_NAME, environ={})
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
    return folder / FILE_NAME


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
