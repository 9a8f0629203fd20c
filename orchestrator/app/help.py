"""Look up what an error code means and what to do about it, in docs/errors.md."""

from dataclasses import dataclass
from pathlib import Path

import orchestrator
from orchestrator.error_codes import CODES
from orchestrator.errors import Retry, UsageError

PAGE = "errors.md"
CODE = "TPU-"


@dataclass(frozen=True)
class CodeMeaning:
    """What a code means in a line, its exit code, whether it is retried, and its part of the page as Markdown."""

    code: str
    meaning: str
    exit_code: int
    retry: Retry
    markdown: str


def code_meaning(word: str) -> CodeMeaning | None:
    """Return the meaning of a code such as `TPU-300` or `300`, None for another word. Raise UsageError."""
    code = f"{CODE}{word}" if word.isdecimal() else word.upper()
    if not code.startswith(CODE):
        return None
    if code not in CODES:
        raise UsageError(
            f"there is no error code {code}", hint="the codes: docs/errors.md",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    kind, meaning = CODES[code]
    parts = page_text().split(f"\n### {code}\n", 1)
    text = parts[-1].split("\n### ", 1)[0].strip() if len(parts) > 1 else ""
    return CodeMeaning(code, meaning, kind.exit_code, kind.retry, text)


def page_text() -> str:
    """Return docs/errors.md, from the package's data or from the checkout."""
    package = Path(orchestrator.__file__).parent
    places = (package / "data" / PAGE, package.parent / "docs" / PAGE)
    return next(path for path in places if path.is_file()).read_text("utf-8")
