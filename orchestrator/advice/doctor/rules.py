"""List all rules of `tpuctl doctor` in the order in which they are shown, and render their manual."""

from typing import Final

from orchestrator.advice.doctor import computer, file, google, login
from orchestrator.advice.doctor.facts import DoctorFinding, DoctorRule, Facts

# In the order of cause and effect: a finding below may say "see ... above".
RULES: Final[tuple[DoctorRule, ...]] = (
    computer.python,
    computer.libraries,
    computer.ssh,
    computer.git,
    computer.gcloud,
    computer.locale,
    computer.colour,
    computer.variables,
    computer.state_folder,
    computer.disk,
    computer.ssh_keys,
    computer.deployments,
    file.file,
    file.source,
    file.regions,
    file.ports,
    computer.packages,
    computer.process,
    computer.namespace,
    computer.daemon,
    computer.ports,
    login.credentials,
    login.gcloud_account,
    login.project,
    computer.clock,
    google.tpu_api,
    google.compute_api,
    google.storage_api,
    google.zones,
    google.tpu_elsewhere,
    google.vm_elsewhere,
    google.runtime,
    google.machine_account,
    google.service_agent,
    google.vm_quota,
    google.vm_image,
    google.vm_machine_type,
    google.tpu_quota,
    google.private_access,
    google.firewall,
    google.iap,
    google.bucket,
    google.permissions,
    login.secrets,
    login.data,
)


def run_rules(facts: Facts) -> tuple[DoctorFinding, ...]:
    """Run all rules over *facts* and return their findings, in the order in which they are printed."""
    return tuple(each(facts) for each in RULES)


def manual() -> str:
    """Return the table of all rules as Markdown, for docs/doctor.md."""
    rows = [f"| `{each.id}` | {each.group.value} | {_text(each)} |" for each in RULES]
    return "\n".join((_HEAD, *rows)) + "\n"


def _text(each: DoctorRule) -> str:
    words = " ".join((each.find.__doc__ or "").split())
    return words.removeprefix("Look for ").removeprefix("Look at ").replace("|", "\\|")


_HEAD: Final = """\
# What `tpuctl doctor` looks at

`tpuctl doctor` looks at this computer, the deployment file, the local cloud and the project, and says for
everything that is not fine what to do. It starts nothing; each question to a cloud has a limit of some
seconds, and all are asked side by side. It works without a network and without credentials: what could
not be found out is `unknown`, which is not wrong.

It exits with 0 when nothing is wrong, also with warnings, and with 1 when something is. With `--fix` it
repairs what is safe to repair here: permissions of the state folder and of SSH keys, and what a dead local cloud
has left. It never changes anything in a project: to switch an API on, it prints the `gcloud` line.

| rule | about | what it looks at |
| --- | --- | --- |"""
