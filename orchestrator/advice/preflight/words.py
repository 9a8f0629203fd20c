"""What the user's command lines say: flags, their values, and packages that are installed."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.domain.exposed_services import joined
from orchestrator.domain.spec import Spec

_PIP: Final = re.compile(r"\b(?:pip3?\s+install|tpuctl-venv)\b((?:(?!\s--\s)[^;&|\n])*)")


def commands(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, str]]:
    """Yield where and text of everything that a shell runs: setup, command, and the lines of shell scripts."""
    yield "job.setup", joined(spec.job.setup)
    yield "job.command", joined(spec.job.command)
    for line in facts.lines:
        if _is_shell(line.file) and not line.text.lstrip().startswith("#"):
            yield line.where, line.text


def _is_shell(file: str) -> bool:
    name = file.rpartition("/")[2]
    return file.endswith((".sh", ".bash")) or "." not in name


def flag(text: str, *names: str) -> str | None:
    """Return the value of the first of the long flags in a command line, or None."""
    found = re.search(rf"(?:^|\s)(?:{'|'.join(map(re.escape, names))})(?:=|\s+)(\S+)", text)
    return found[1].strip("\"'") if found else None


def installs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each `pip install` or `tpuctl-venv` in a command line, up to what it then runs."""
    for found in _PIP.finditer(text):
        try:
            yield tuple(shlex.split(found[1]))
        except ValueError:
            # An open quote: the line goes on somewhere else.
            yield tuple(found[1].split())


def runs_fairseq(spec: Spec, facts: SourceFacts) -> str | None:
    """Return the first command line that trains with fairseq, or None."""
    return next((text for _, text in commands(spec, facts) if re.search(r"\bfairseq-train\b", text)), None)


def is_lost(path: str, kept: str = "") -> bool:
    """Say whether a literal path lies on the machine's own disk, outside *kept* (which the agent commits)."""
    plain = path.strip("\"'")
    if not plain or "$" in plain or "://" in plain or plain.startswith(("-", "{")):
        return False
    return not (kept.startswith("/") and f"{plain}/".startswith(f"{kept.rstrip('/')}/"))
