"""
Which paths of the source folder stay at home: .gitignore and .tpuctlignore, nested ones too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILES = (".gitignore", ".tpuctlignore")
ALWAYS = frozenset({".git", "__pycache__", ".venv", ".tpuctl-bundle"})
WRITTEN = ("/*-report.html", "/tpuctl-support-*.zip")
"""What tpuctl itself writes beside the deployment file; a new report is no new code. The user's rules win."""


@dataclass(frozen=True)
class Rules:
    """
    Hold the rules that reach a folder: its own first, then those of the folders above.

    *levels* are pairs of a folder ("" or ending in "/", relative to the source) and its rules.
    """

    levels: tuple[tuple[str, "GitIgnoreSpec"], ...] = ()

    def entering(self, folder: Path, prefix: str) -> "Rules":
        """
        Return the rules inside *folder*, whose path relative to the source is *prefix*.

        Raise UsageError for a rule that cannot be read.
        """
        from pathspec import GitIgnoreSpec

        lines: list[str] = []
        for name in FILES:
            file = folder / name
            if file.is_file():
                lines += _lines(file)
        if not lines:
            return self
        try:
            spec = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise UsageError(
                f"{folder / FILES[1]} or {FILES[0]}: a rule cannot be understood: {error}",
                unchanged="Nothing was sent.",
                hint="Correct the line; the rules are those of .gitignore.",
            ) from error
        return Rules(((prefix, spec), *self.levels))

    def ignore(self, path: str, name: str, folder: bool) -> bool:
        """
        Tell whether *path* (relative to the source) stays at home; the nearest rule decides.
        """
        if name in ALWAYS:
            return True
        for prefix, spec in self.levels:
            inner = path[len(prefix) :] + ("/" if folder else "")
            verdict = spec.check_file(inner).include
            if verdict is not None:
                return bool(verdict)
        return False


def first_rules() -> Rules:
    """
    Return the rules that hold where no file of the user's says anything.
    """
    from pathspec import GitIgnoreSpec

    return Rules((("", GitIgnoreSpec.from_lines(WRITTEN)),))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            unchanged="Nothing was sent.",
            hint=f"Make it readable: chmod u+r {file}",
        ) from error
