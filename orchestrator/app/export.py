"""Export a deployment as plain scripts or as files of another system."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from orchestrator.app.context.choice import Choice
from orchestrator.app.deployment.session import read_spec
from orchestrator.app.plan import project_offline
from orchestrator.app.source.bundle import build
from orchestrator.app.source.source_folder import source_folder
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError
from orchestrator.scripts.exports.jobset import jobset_files, jobset_steps
from orchestrator.scripts.exports.plain import export_files
from orchestrator.scripts.exports.ray import ray_files, ray_steps
from orchestrator.scripts.exports.skypilot import skypilot_files, skypilot_steps
from orchestrator.scripts.exports.unsupported import Target, Unsupported, readme, unsupported


@dataclass(frozen=True)
class Exported:
    """The folder, the project of the exported files, and the files; *unsupported* is empty for plain scripts."""

    folder: Path
    project: str
    files: tuple[str, ...]
    unsupported: tuple[Unsupported, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return what was written as `--json` prints it."""
        unsupported = [{"what": row.what, "message": row.message} for row in self.unsupported]
        return {
            "folder": str(self.folder), "project": self.project, "files": list(self.files),
            "unsupported": unsupported,
        }  # fmt: skip


def export(
    choice: Choice, folder: Path, to: Literal["scripts"] | Target = "scripts", slices: int = 1
) -> Exported:
    """
    Write files into *folder*, which must be new or empty; needs no network.

    Raise UsageError for a folder with files, an unknown project, and what the target does not support.
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
    if slices > 1 and to != "jobset":
        raise UsageError("--slices is for --to jobset", hint="leave it out", changed="nothing was written")
    source = source_folder(path, spec)
    if to == "scripts":
        files = export_files(spec, project, folder, source, path.absolute().parent)
        return Exported(folder, project, _write(folder, files))
    return _export_to_system(spec, project, folder, source, to, slices)


def _export_to_system(
    spec: Spec, project: str, folder: Path, source: Path, to: Target, slices: int
) -> Exported:
    accelerator = load_catalog().accelerator(spec.tpu.type)
    if accelerator is None or spec.job.run_on == "vm":
        raise UsageError(
            "another system cannot do this: " + ("job.run_on: vm" if accelerator else f"tpu.type: {spec.tpu.type}"),
            hint="change it for the export, by --set", changed="nothing was written",
        )  # fmt: skip
    with TemporaryDirectory() as place:
        # Built for every target, so that a key in the code is refused here even if the target sends it itself.
        code = build(source, Path(place))
        if to == "skypilot":
            files, steps = (
                skypilot_files(spec, project, accelerator.hosts),
                skypilot_steps(spec, source, folder),
            )
        elif to == "ray":
            files, steps = (
                ray_files(spec, project, accelerator, source, folder),
                ray_steps(spec, project, folder),
            )
        else:
            files = jobset_files(spec, project, accelerator, code.digest, slices)
            steps = jobset_steps(spec, project, accelerator, code.digest, slices)
            (folder / "code").mkdir(parents=True)
            shutil.move(code.path, folder / "code")
    rows = unsupported(spec, to)
    files |= {"README.md": readme(f"{spec.name} for {to}", steps, rows)}
    return Exported(folder, project, _write(folder, files), rows)


def _write(folder: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if text.startswith("#!"):
            file.chmod(0o755)
    return tuple(sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()))
