"""Find the folder to push, which must be inside the project."""

from pathlib import Path

from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError


def source_folder(file: Path, spec: Spec) -> Path:
    """
    Return the folder whose code is pushed. Raise UsageError if job.source is outside of the project.

    Otherwise a stray `..` would send a whole home folder, keys included. The project is the git checkout with
    the deployment file, else the file's folder.
    """
    # Resolve links on both sides, or a link could lead out of the project unnoticed.
    here = file.absolute().parent.resolve()
    source = (here / spec.job.source).resolve()
    project = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
    if source.is_relative_to(project):
        return source
    raise UsageError(
        f"job.source leads to {source}, out of the project {project}",
        hint=f"put the code below {project}, or {file.name} into the folder above the code",
        changed="nothing was read or sent", code="TPU-141",
    )  # fmt: skip
