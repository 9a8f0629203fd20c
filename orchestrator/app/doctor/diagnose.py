"""Examine computer, file, local cloud and project; judge them, and repair what is safe to repair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.advice.doctor.facts import DoctorFinding, Facts, File
from orchestrator.advice.doctor.rules import run_rules
from orchestrator.app.context.choice import Choice
from orchestrator.app.deployment.session import read_spec
from orchestrator.app.doctor.computer_facts import observe_computer, observe_local
from orchestrator.app.doctor.google_facts import observe_google
from orchestrator.app.source.source_files import sent_files
from orchestrator.app.source.source_folder import source_folder
from orchestrator.config.config_error import ConfigError
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import stops
from orchestrator.domain.spec import Spec
from orchestrator.emulator.control import reap
from orchestrator.errors import UsageError
from orchestrator.planning.sidecars import sidecars
from orchestrator.ssh.port_forward import free_port

NO_FILE = "TPU-111"


@dataclass(frozen=True)
class Diagnosis:
    """The findings, and what was repaired before."""

    findings: Sequence[DoctorFinding]
    fixed: Sequence[str] = ()

    @property
    def stops(self) -> bool:
        """Return whether something is wrong."""
        return stops(finding.level for finding in self.findings)


def diagnose(choice: Choice, *, fix: bool = False) -> Diagnosis:
    """Examine everything, after safe repairs with *fix*. Starts nothing."""
    facts = _gather(choice)
    fixed = _fix(facts) if fix else []
    if fixed:
        # Observed again, so that a failed repair remains a finding.
        facts = replace(facts, computer=observe_computer(choice.cloud), local=observe_local(choice.cloud))
    return Diagnosis(run_rules(facts), fixed)


def _gather(choice: Choice) -> Facts:
    file = _observe_file(choice)
    google = observe_google(choice, file.spec)
    return Facts(observe_computer(choice.cloud), file, observe_local(choice.cloud), google)


def _observe_file(choice: Choice) -> File:
    """Return the facts about the deployment file; a wrong or missing file is a finding, not an error."""
    try:
        path, spec = read_spec(choice)
    except ConfigError as error:
        first, *others = error.findings
        more = f" (and {len(others)} more)" if others else ""
        return File(str(choice.file or first.file), message=f"{first}{more}", hint=error.hint)
    except UsageError as error:
        if error.code == NO_FILE:
            return File()
        return File(str(choice.file or "tpuctl.yaml"), message=error.message, hint=error.hint)
    size, message = _size(path, spec)
    taken = {one.name: one.port for one in sidecars(spec, "") if not free_port(one.port)}
    return File(str(path), spec, "", "", spec.job.source, size, message, taken, load_catalog())


def _size(path: Path, spec: Spec) -> tuple[int | None, str]:
    try:
        return sum(entry.size for entry in sent_files(source_folder(path, spec))), ""
    except UsageError as error:
        return None, error.message


def _fix(facts: Facts) -> list[str]:
    """Repair permissions of our own files and remove remains of a dead local cloud; return what was done."""
    done = []
    here = facts.computer
    # A user who may write this folder may change hooks and records, and thus what is executed.
    if here.state_mode is not None and here.state_mode & 0o022:
        Path(here.state).chmod(0o700)
        done.append(f"chmod 700 {here.state}")
    for key in here.open_keys:
        Path(key).chmod(0o600)
        done.append(f"chmod 600 {key}")
    if facts.local.daemon == "stale":
        folder = Path(facts.local.folder)
        # Processes first, because daemon.json is the only way to find them.
        reap(folder)
        (folder / "daemon.json").unlink(missing_ok=True)
        done.append("removed what a dead local cloud had left; disks and buckets stay")
    return done
