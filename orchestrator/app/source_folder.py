"""Which folder is pushed: one of the project, never what lies above it."""

from pathlib import Path

from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError


def source_folder(file: Path, spec: Spec) -> Path:
    """
    Return the folder whose code is pushed.

    Raise UsageError when job.source leads out of the project: a slip of `..` would send a whole home, keys
    included, to a bucket. The project is the git checkout that holds the deployment file, else its folder.
    """
    # Links resolved on both sides: a link would lead out of the project unseen otherwise.
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
