"""
What others could see or take: open notebooks, and secrets where they do not belong.
"""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.core.catalog import Catalog
from orchestrator.core.preflight.facts import SourceFacts
from orchestrator.core.preflight.finding import Hit, Level, rule
from orchestrator.core.preflight.words import joined
from orchestrator.core.spec import Spec

_APP: Final = r"(?:NotebookApp|ServerApp|LabApp|JupyterApp|IdentityProvider|PasswordIdentityProvider)"
_END: Final = r"(?=\s|$|[;&|,)}\]])"
_QUOTE: Final = r"(?:\\?[\"'])"
_NO_TOKEN: Final = (
    # A flag or a variable with nothing behind its sign, or with empty quotes.
    re.compile(rf"(?:--(?:{_APP}\.)?token|\bJUPYTER_TOKEN)={_QUOTE}{{0,3}}{_END}"),
    re.compile(rf"--(?:{_APP}\.)?token{_QUOTE}?[\s,]+(?:''|\"\"){_END}"),
    # A settings file, or a variable that Python sets.
    re.compile(rf"(?:{_APP}\.token|\bJUPYTER_TOKEN[\"'\]]*)\s*[=:]\s*(?:[bru]?(?:''|\"\")(?![\"'])|None\b)"),
)
_NO_TOKEN_JSON: Final = re.compile(r"[\"']token[\"']\s*:\s*(?:\"\"|''|null)")
_ANY: Final = rf"(?:{_QUOTE}?(?:0(?:\.0){{0,3}}|\\?\*|\[?::\]?){_QUOTE}?|''|\"\"){_END}"
_EVERYWHERE: Final = re.compile(rf"(?:--ip|{_APP}\.ip)(?:{_QUOTE}?[\s,=:]+{_ANY}|={_END})")
_EVERYWHERE_JSON: Final = re.compile(rf"[\"']ip[\"']\s*:\s*{_ANY}")
JUPYTER: Final = re.compile(rf"jupyter|ipython\s+notebook|{_APP}", re.IGNORECASE)
_SECRETS: Final = {
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
def open_notebook(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for Jupyter without a token, or on all addresses: whoever finds the machine runs code on it.

    In every spelling of flags, settings files and variables. Lines that are comments do not count.
    """
    fix = "listen on 127.0.0.1, keep the token, and reach it through: tpuctl ssh"
    for where, text, known in _texts(spec, facts):
        if not (known or JUPYTER.search(text)):
            continue
        if any(form.search(text) for form in _NO_TOKEN) or (known and _NO_TOKEN_JSON.search(text)):
            yield Hit(where, "Jupyter with an empty token: whoever reaches the port has a shell", fix)
        if _EVERYWHERE.search(text) or (known and _EVERYWHERE_JSON.search(text)):
            yield Hit(where, "Jupyter listens on 0.0.0.0, that is on all addresses of the machine", fix)


@rule("secret-in-env", Level.STOP, Level.WARN)
def secret_in_env(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[Hit]:
    """
    Look for secrets in job.env, command and setup, which are stored in the machine's metadata.

    Known forms (hf_..., private keys, 40 hex digits under a telling name, as of Weights & Biases) stop. The
    form or the name alone is a warning; names that tell of a revision (GIT_COMMIT) are left alone.
    """
    fix = "keep it in Secret Manager; let the job read it as the machine's service account"
    for name, value in spec.job.env.items():
        kind = _kind(value)
        if kind:
            yield Hit(f"job.env.{name}", f"looks like {kind} ({len(value)} characters)", fix)
        elif _HEX40.fullmatch(value) and not _REVISION.search(name):
            level = Level.STOP if _KEY.search(name) else Level.WARN
            yield Hit(
                f"job.env.{name}", "40 hex digits: looks like an API key of Weights & Biases", fix, level
            )
        elif _NAMED.search(name) and len(value) >= 8 and "$" not in value:
            yield Hit(
                f"job.env.{name}", f"is named like a secret and has {len(value)} characters", fix, Level.WARN
            )
    for where, text in (("job.command", spec.job.command), ("job.setup", spec.job.setup)):
        kind = _kind(text) or ("an API key" if re.search(r"(?:KEY|TOKEN)=[\"']?[0-9a-f]{40}\b", text) else "")
        if kind:
            yield Hit(where, f"a word in it looks like {kind}", fix)


def _texts(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, str, bool]]:
    """
    Yield where, text and whether the file is known to be about Jupyter.
    """
    yield "job.command", joined(spec.job.command), False
    yield "job.setup", joined(spec.job.setup), False
    yield from ((f"job.env.{name}", f"{name}={value}", False) for name, value in spec.job.env.items())
    lines = [line for line in facts.lines if not line.text.lstrip().startswith(("#", "//"))]
    about = {line.file for line in lines if JUPYTER.search(line.text) or JUPYTER.search(line.file)}
    for line in lines:
        yield line.where, line.text, line.file in about


def _kind(text: str) -> str:
    return next((kind for kind, pattern in _SECRETS.items() if pattern.search(text)), "")
