"""Show what an error code means."""

import re

from orchestrator.app.help import CodeMeaning
from orchestrator.cli.console import wrapped
from orchestrator.errors import Retry

RETRIED = {
    Retry.PERMANENT: "tpuctl does not try again by itself",
    Retry.CAPACITY: "`tpuctl watch` tries other zones, then waits and tries again",
    Retry.QUOTA: "`tpuctl watch` tries again a few times, since a deletion may free quota",
    Retry.TRANSIENT: "`tpuctl watch` tries again by itself",
    Retry.UNKNOWN: "`tpuctl watch` tries again a few times",
}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def code_text(found: CodeMeaning, width: int) -> str:
    """Return a code's meaning, its exit code and its part of docs/errors.md, wrapped at *width* (0: not at all)."""
    head = f"{found.code}: {found.meaning}\nExit code {found.exit_code}; {RETRIED[found.retry]}"
    return _filled(f"{head}\n\n{_LINK.sub(_target, found.markdown)}".rstrip(), width)


def _filled(text: str, width: int) -> str:
    """Return a text with each paragraph wrapped between words."""
    if not width:
        return text
    head, *rest = text.split("\n\n")
    paragraphs = [head.splitlines(), *([" ".join(part.split())] for part in rest)]
    return "\n\n".join("\n".join(wrapped(lines, width, "")) for lines in paragraphs)


def _target(found: "re.Match[str]") -> str:
    """Return a link as plain text for a terminal."""
    return f"{found[1]} (docs/{found[2]})"
