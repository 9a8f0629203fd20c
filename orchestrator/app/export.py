"""Write a deployment as plain scripts, which a person runs with gcloud."""

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.choice import Choice
from orchestrator.app.plan import project_offline
from orchestrator.app.session import read_spec
from orchestrator.app.source_folder import source_folder
from orchestrator.errors import UsageError
from orchestrator.scripts.export import export_files


@dataclass(frozen=True)
class Exported:
    """Name the folder, the project that its scripts work in, and the files in it."""

    folder: Path
    project: str
    files: tuple[str, ...]


def export(choice: Choice, folder: Path) -> Exported:
    """
    Write the scripts into *folder*, which is new or empty; no network is asked.

    Raise UsageError for a folder with files, an unknown project, and what plain scripts cannot do.
    """
    path, spec = read_spec(choice)
    project = project_offline(choice.cloud, spec)
    if not project:
        raise UsageError(
            "the project is not known", hint="add --set project=PROJECT, or set it in the file",
            changed="nothing was written",
        )  # fmt: skip
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists already", hint="choose another folder, or remove it first",
            changed="nothing was written", code="TPU-114",
        )  # fmt: skip
    here = path.absolute().parent
    files = export_files(spec, project, folder, source_folder(path, spec), here)
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if text.startswith("#!"):
            file.chmod(0o755)
    return Exported(folder, project, tuple(files))
