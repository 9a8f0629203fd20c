"""Find the deployments that this computer has brought up, from the files beside their records."""

from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.config.adapter import restore
from orchestrator.config.layers import overrides_of
from orchestrator.config.load import find, load
from orchestrator.domain.checksum import verified
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import TpuctlError, UsageError


def spec_of(cloud: str, name: str) -> Spec:
    """Return the stored spec of deployment *name*. Raise UsageError if there is none, or more than one."""
    found = known_files(cloud)
    names = sorted({path.parent.name for path in found})
    chosen = [path for path in found if path.parent.name == name]
    if not chosen:
        hint = f"known here: {', '.join(names)}" if names else "run it in the folder of its tpuctl.yaml"
        raise UsageError(
            f"this computer has brought up no deployment {name!r} on --cloud {cloud}",
            hint=hint, changed="nothing was changed", code="TPU-137",
        )  # fmt: skip
    # Never guessed: the wrong project's deployment would be stopped or billed.
    if len(chosen) > 1:
        projects = ", ".join(path.parent.parent.name for path in chosen)
        raise UsageError(
            f"{name} exists in several projects: {projects}",
            hint="run it in the folder of its tpuctl.yaml, without a name", changed="nothing was changed",
            code="TPU-137",
        )  # fmt: skip
    return spec_in(chosen[0])


def spec_in(path: Path) -> Spec:
    """Return the spec stored in *path*. Raise UsageError if it is unreadable."""
    try:
        return restore(verified(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"what is kept of {path.parent.name} cannot be read: {error}",
            hint="run it in the folder of its tpuctl.yaml, without a name", changed="nothing was changed",
            code="TPU-137",
        ) from error  # fmt: skip


def billed(record: Record) -> bool:
    """Return whether something may be billed, including a requested TPU without an answer."""
    # The request is recorded before it is sent, so this is right also after a kill in between.
    asked = record.node.accepted or record.node.requested_at > 0
    return asked or any(span.until is None for span in record.spans)


def way_by_name(cloud: str, command: str) -> str:
    """Return how *command* reaches a deployment of this computer without its file; "" if none is known here."""
    try:
        found = known_files(cloud)
    except TpuctlError:
        return ""
    names = sorted({path.parent.name for path in found})
    running = sorted({path.parent.name for path in found if _billed_in(path)})
    if not names:
        return ""
    which = (
        f"still billed, as far as known: {', '.join(running)}" if running else f"known: {', '.join(names)}"
    )
    return f"{command} NAME   ({which}; all: tpuctl status --all)"


def _billed_in(path: Path) -> bool:
    """Return whether the deployment whose spec is in *path* is billed, as one with an unreadable record may be."""
    try:
        return billed(decode((path.parent / "record.json").read_bytes(), path.parent.name))
    except (OSError, TpuctlError):
        return True


def billed_elsewhere(cloud: str, name: str, project: str) -> list[str]:
    """Return other projects in which a deployment of this name is billed, as far as this computer knows."""
    found = []
    for path in known_files(cloud):
        other = path.parent.parent.name
        if path.parent.name != name or other == project:
            continue
        try:
            record = decode((path.parent / "record.json").read_bytes(), name)
        # Unreadable files are skipped here; the clean-up of expired deployments reports them.
        except (OSError, TpuctlError):
            continue
        found += [other] if billed(record) else []
    return found


def on_local_cloud(choice: Choice, name: str | None) -> str:
    """Return the deployment's name if this computer has brought it up on the local cloud, else ""."""
    try:
        wanted = name or load(choice.file or find(Path.cwd()), overrides_of(choice.settings)).name
    except TpuctlError:
        return ""
    return wanted if any(path.parent.name == wanted for path in known_files("local")) else ""
