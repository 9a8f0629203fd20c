"""Open a deployment by its name: one that this computer has brought up needs no file."""

from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.choice import Choice
    from orchestrator.app.reporter import Reporter
    from orchestrator.app.session import Session
    from orchestrator.domain.spec import Spec


def open_session(
    choice: "Choice", name: str | None, reporter: "Reporter", *, only_looks: bool = False
) -> "Session":
    """
    Return the session of the deployment *name* as it was brought up here, or of the file without a name.

    Raise UsageError when no deployment or more than one has that name.
    """
    from orchestrator.app.session import Session

    spec = _kept(choice.cloud, name) if name else None
    return Session(choice, reporter, spec, only_looks=only_looks)


def _kept(cloud: str, name: str) -> "Spec":
    from orchestrator.app.state_folders import kept_files

    found = kept_files(cloud)
    names = sorted({path.parent.name for path in found})
    chosen = [path for path in found if path.parent.name == name]
    if not chosen:
        hint = f"known here: {', '.join(names)}" if names else "run it in the folder of its tpuctl.yaml"
        raise UsageError(
            f"this computer has brought up no deployment {name!r} on --cloud {cloud}",
            hint=hint, changed="nothing was changed", code="TPU-137",
        )  # fmt: skip
    if len(chosen) > 1:
        projects = ", ".join(path.parent.parent.name for path in chosen)
        raise UsageError(
            f"{name} exists in several projects: {projects}",
            hint="run it in the folder of its tpuctl.yaml, without a name", changed="nothing was changed",
            code="TPU-137",
        )  # fmt: skip
    return spec_in(chosen[0])


def spec_in(path: "Path") -> "Spec":
    """Return what is kept in *path*; raise UsageError when it cannot be read."""
    from orchestrator.config.adapter import restore
    from orchestrator.domain.checksum import verified

    try:
        return restore(verified(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"what is kept of {path.parent.name} cannot be read: {error}",
            hint="run it in the folder of its tpuctl.yaml, without a name", changed="nothing was changed",
            code="TPU-137",
        ) from error  # fmt: skip
