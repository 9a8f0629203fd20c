"""Check what others could see or take: open notebooks, and secrets in the wrong place."""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.check.findings import RawFinding, SourceFacts, rule
from orchestrator.config.setting_types import dotted
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.machines.scopes import SELF_DELETE_ROLE
from orchestrator.domain.source.exposed_services import JUPYTER, SAFE, exposures, job_texts
from orchestrator.domain.spec import Spec

_SECRETS: Final = {
    # Full lengths as issued by the services: a shorter minimum would stop jobs for ordinary words.
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    "a Google API key": re.compile(r"\bAIza[\w-]{35}"),
    "an AWS key": re.compile(r"\bAKIA[A-Z0-9]{16}\b"),
}
_HEX40: Final = re.compile(r"[0-9a-f]{40}")
_KEY: Final = re.compile(r"WANDB|KEY|TOKEN|SECRET|PASS", re.IGNORECASE)
_REVISION: Final = re.compile(r"COMMIT|SHA|REV|HASH|DIGEST|VERSION|REF", re.IGNORECASE)
_NAMED: Final = re.compile(
    r"(?:_TOKEN|_API_KEY|_SECRET|_SECRET_KEY|_PASSWORD|^PASSWORD|^TOKEN|^API_KEY)$", re.IGNORECASE
)


@rule("open-notebook", Level.STOP)
def open_notebook(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for Jupyter without a token, and for Jupyter or TensorBoard that all computers can reach.

    Whoever finds the machine runs code on it, or reads the logs. In every spelling of flags, settings
    files and variables; the deployment file itself is refused with it. Comment lines do not count.
    """
    for where, text, about in _texts(spec, facts):
        yield from (RawFinding(where, message, SAFE) for message in exposures(text, about=about))


@rule("wide-account", Level.NOTE)
def wide_account(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for TPUs that may delete themselves (watch.self_delete): then the job may delete others too.

    Their account needs a role that Google grants for a whole project only, and the scope for it.
    """
    if spec.watch.self_delete:
        yield RawFinding(
            "watch.self_delete",
            f"{SELF_DELETE_ROLE} and the scope cloud-platform let a TPU delete itself, and let whatever runs "
            "in the job delete every TPU of the project",
            "give the machines a service_account of their own, with no other role than this and the bucket's",
        )


@rule("secret-in-env", Level.STOP, Level.WARN)
def secret_in_env(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for secrets in job.env, command and setup, which are stored in the machine's metadata.

    Known forms (hf_..., private keys, 40 hex digits under a telling name, as of Weights & Biases) stop. The
    form or the name alone is a warning; names that tell of a revision (GIT_COMMIT) are left alone.
    """
    hint = "keep it in Secret Manager; let the job read it as the machine's service account"
    for name, value in spec.job.env.items():
        kind = _kind(value)
        # The length and never the value, because findings are printed and kept by CI.
        if kind:
            yield RawFinding(f"job.env.{name}", f"looks like {kind} ({len(value)} characters)", hint)
        # 40 hex digits may be a commit; only the variable's name tells.
        elif _HEX40.fullmatch(value) and not _REVISION.search(name):
            level = Level.STOP if _KEY.search(name) else Level.WARN
            yield RawFinding(
                f"job.env.{name}", "40 hex digits: looks like an API key of Weights & Biases", hint, level
            )
        elif _NAMED.search(name) and len(value) >= 8 and "$" not in value:
            yield RawFinding(
                f"job.env.{name}", f"is named like a secret and has {len(value)} characters", hint, Level.WARN
            )
    for where, text in (("job.command", spec.job.command), ("job.setup", spec.job.setup)):
        kind = _kind(text) or ("an API key" if re.search(r"(?:KEY|TOKEN)=[\"']?[0-9a-f]{40}\b", text) else "")
        if kind:
            yield RawFinding(where, f"a word in it looks like {kind}", hint)


@rule("key-in-source", Level.STOP, Level.WARN, Level.NOTE)
def key_in_source(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for keys in the source folder, which the bucket and every machine of the job would get.

    A file that holds one (private keys, tokens of known forms) stops, here and in `up` and `push`. Files that
    are keys by their names (`.env`, `.ssh/`, `.aws/`, `*.pem`, `id_rsa` ...) are excluded: a note. A line
    `!NAME` in .tpuctlignore sends either all the same: a warning.
    """
    hint = "keep it in Secret Manager (`tpuctl secret set`, job.secrets)"
    for one in facts.keys:
        if one.allowed:
            message = (
                f"is sent to every machine of the job and holds {one.kind}: a pattern of yours asks for it"
            )
            yield RawFinding(one.path, message, hint, Level.WARN)
        else:
            name = f"name it in .tpuctlignore; if it is not a key, allow it there with !{one.path}"
            yield RawFinding(
                one.path, f"holds what looks like {one.kind}: `up` refuses to send it", f"{hint}; {name}"
            )
    for excluded in facts.excluded:
        if excluded.is_key:
            message = "is excluded: by its name it holds keys, and the job would hand them out"
            yield RawFinding(
                excluded.path,
                message,
                f"{hint}; or send it with a line !{excluded.path} in .tpuctlignore",
                Level.NOTE,
            )


def _texts(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, str, bool]]:
    """Yield place, text, and whether the file is known to be about Jupyter."""
    yield from ((dotted(path), text, about) for path, text, about in job_texts(spec))
    lines = [line for line in facts.lines if not line.text.lstrip().startswith(("#", "//"))]
    about = {line.file for line in lines if JUPYTER.search(line.text) or JUPYTER.search(line.file)}
    for line in lines:
        yield line.where, line.text, line.file in about


def _kind(text: str) -> str:
    return next((kind for kind, pattern in _SECRETS.items() if pattern.search(text)), "")
