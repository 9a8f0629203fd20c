"""Show what an error code means, from docs/errors.md."""

import re
from pathlib import Path

import orchestrator
from orchestrator.cli.console import wrapped
from orchestrator.error_codes import CODES
from orchestrator.errors import Retry, UsageError

PAGE = "errors.md"
RETRIED = {
    Retry.PERMANENT: "tpuctl does not try again by itself",
    Retry.CAPACITY: "tpuctl watch tries other zones, then waits and tries again",
    Retry.QUOTA: "tpuctl watch tries again a few times, since a deletion may free quota",
    Retry.TRANSIENT: "tpuctl watch tries again by itself",
    Retry.UNKNOWN: "tpuctl watch tries again a few times",
}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def code_text(code: str) -> str:
    """Return the meaning of an error code, its exit code, and its section in docs/errors.md. Raise UsageError."""
    if code not in CODES:
        raise UsageError(
            f"there is no error code {code}", hint="the codes: docs/errors.md",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    kind, meaning = CODES[code]
    head = f"{code}: {meaning}\nExit code {kind.exit_code}; {RETRIED[kind.retry]}"
    parts = page_text().split(f"\n### {code}\n", 1)
    text = parts[-1].split("\n### ", 1)[0].strip() if len(parts) > 1 else ""
    return f"{head}\n\n{_LINK.sub(_target, text)}".rstrip()


def filled(text: str, width: int) -> str:
    """Return a page's text with each paragraph wrapped between words at *width* (0: as it is)."""
    if not width:
        return text
    head, *rest = text.split("\n\n")
    paragraphs = [head.splitlines(), *([" ".join(part.split())] for part in rest)]
    return "\n\n".join("\n".join(wrapped(lines, width, "")) for lines in paragraphs)


def page_text() -> str:
    """Return docs/errors.md, from the package's data or from the checkout."""
    package = Path(orchestrator.__file__).parent
    places = (package / "data" / PAGE, package.parent / "docs" / PAGE)
    return next(path for path in places if path.is_file()).read_text("utf-8")


def _target(found: "re.Match[str]") -> str:
    """Return a link as plain text for a terminal."""
    return f"{found[1]} (docs/{found[2]})"
