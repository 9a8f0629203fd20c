"""Check the deployment file and the code before money is spent."""

from dataclasses import dataclass, replace

from orchestrator.advice.check.findings import CheckFinding, SourceFacts
from orchestrator.advice.check.rules import run_rules
from orchestrator.app.context.choice import Choice
from orchestrator.app.deployment.session import read_spec
from orchestrator.app.source.local_data import size_of
from orchestrator.app.source.source_facts import gather
from orchestrator.app.source.source_folder import source_folder
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import Level, stops
from orchestrator.domain.machines.image_python import python_text
from orchestrator.emulator.packages import INSTALL, missing_packages


@dataclass(frozen=True)
class Checked:
    """The findings of the rules, the file and code they are about, and the Python of the job in words."""

    name: str
    findings: tuple[CheckFinding, ...]
    facts: SourceFacts
    python: str = ""

    @property
    def stops(self) -> bool:
        """Return whether a finding forbids the start."""
        return stops(finding.level for finding in self.findings)


def check(choice: Choice) -> Checked:
    """Return the findings of all rules; starts nothing and needs no network."""
    path, spec = read_spec(choice)
    facts = gather(source_folder(path, spec), skip=path)
    facts = replace(facts, data_bytes=size_of(spec.job.data, path.absolute().parent))
    catalog = load_catalog()
    findings = (*missing_for(choice.cloud), *run_rules(spec, catalog, facts))
    return Checked(spec.name, findings, facts, python_text(spec, catalog, local=choice.cloud == "local"))


def missing_for(cloud: str) -> tuple[CheckFinding, ...]:
    """Return a finding if *cloud* is the local one and cannot start here, as packages of its extra are missing."""
    missing = missing_packages() if cloud == "local" else ()
    if not missing:
        return ()
    message = f"the local cloud needs {', '.join(missing)}: not installed, so `up` fails"
    return (CheckFinding("local-packages", Level.STOP, "--cloud local", message, INSTALL),)
