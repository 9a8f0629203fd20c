"""Refer to secrets: the deployment file names them, and only the machine that needs one reads its value."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.spec import Spec

SCHEME = "secret://"
ACCESS_ROLE = "roles/secretmanager.secretAccessor"
"""Role that the machines' account needs on each secret; the user grants it, tpuctl never does."""

NAME_PATTERN = "[A-Za-z0-9_-]{1,255}"
_REFERENCE = re.compile(
    f"{SCHEME}(?P<name>{NAME_PATTERN})(?:/versions/(?P<version>latest|[1-9][0-9]{{0,9}}))?"
)


@dataclass(frozen=True)
class SecretRef:
    """One secret of the deployment's project in Secret Manager; *version* is a number or `latest`."""

    name: str
    version: str = "latest"

    @property
    def text(self) -> str:
        """Return the reference in the syntax of the deployment file."""
        return SCHEME + self.name + ("" if self.version == "latest" else f"/versions/{self.version}")

    def path(self, project: str) -> str:
        """Return the resource name of the version."""
        return f"projects/{project}/secrets/{self.name}/versions/{self.version}"


def reference(text: str) -> SecretRef | None:
    """Parse `secret://NAME` or `secret://NAME/versions/N`; return None for anything else."""
    # fullmatch: anything after the name would be sent to Secret Manager as a path.
    found = _REFERENCE.fullmatch(text)
    return SecretRef(found["name"], found["version"] or "latest") if found else None


def job_secrets(spec: Spec) -> dict[str, SecretRef]:
    """Return the job's secrets by variable; invalid references are left out, and `check` refuses them."""
    found = {name: reference(text) for name, text in spec.job.secrets.items()}
    return {name: ref for name, ref in found.items() if ref is not None}


def secret_names(spec: Spec) -> Iterator[str]:
    """Yield the name of each secret of the job once, in the order of the file."""
    yield from dict.fromkeys(ref.name for ref in job_secrets(spec).values())


def secret_lines(spec: Spec, role: str) -> dict[str, str]:
    """Return the secrets that a kind of machine reads, by variable, as `plan` shows them: names only."""
    held = job_secrets(spec) if spec.job.run_on == role else {}
    if not held:
        return {}
    named = ", ".join(f"{variable} from {ref.text}" for variable, ref in held.items())
    needs = f"{ACCESS_ROLE} on each, and the scope cloud-platform; tpuctl grants no role for them"
    return {"secrets": named, "its account needs for them": needs}


def grant_line(name: str, account: str, project: str = "") -> str:
    """Return the gcloud command that lets *account* read one secret."""
    where = f" --project={project}" if project else ""
    return (
        f"gcloud secrets add-iam-policy-binding {name}{where} "
        f"--member=serviceAccount:{account} --role={ACCESS_ROLE}"
    )
