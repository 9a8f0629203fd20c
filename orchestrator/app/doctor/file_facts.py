"""What `tpuctl doctor` finds in the deployment file and beside it."""

from pathlib import Path

from orchestrator.advice.doctor.facts import File
from orchestrator.app.choice import Choice
from orchestrator.app.session import read_spec
from orchestrator.config.complaints import ConfigError
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError
from orchestrator.planning.sidecars import sidecars

NO_FILE = "TPU-111"


def look_at_file(choice: Choice) -> File:
    """Return what the deployment file says; one that is wrong or missing is a finding, not an error."""
    try:
        path, spec = read_spec(choice)
    except ConfigError as error:
        first, *others = error.complaints
        more = f" (and {len(others)} more)" if others else ""
        return File(str(choice.file or first.path), problem=f"{first}{more}", hint=error.hint)
    except UsageError as error:
        if error.code == NO_FILE:
            return File()
        return File(str(choice.file or "tpuctl.yaml"), problem=error.message, hint=error.hint)
    size, problem = _size(path, spec)
    return File(str(path), spec, "", "", spec.job.source, size, problem, _taken(spec), load_catalog())


def _size(path: Path, spec: Spec) -> tuple[int | None, str]:
    from orchestrator.app.source_folder import source_folder
    from orchestrator.ssh.source_folder import survey

    try:
        return sum(entry.size for entry in survey(source_folder(path, spec))), ""
    except UsageError as error:
        return None, error.message


def _taken(spec: Spec) -> dict[str, int]:
    """Return the sidecars whose port another program of this computer holds."""
    from orchestrator.ssh.tunnel import free_port

    return {one.name: one.port for one in sidecars(spec, "") if not free_port(one.port)}
