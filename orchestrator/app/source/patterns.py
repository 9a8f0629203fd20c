"""Decide which paths of the source folder are excluded: .gitignore, .tpuctlignore (nested too) and keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pathspec import GitIgnoreSpec

from orchestrator.contract.bucket.object_names import DATA_LIST
from orchestrator.domain.source.excluded_paths import PatternLine
from orchestrator.domain.source.key_files import KEY_FILES
from orchestrator.errors import UsageError

FILES = (".gitignore", ".tpuctlignore")
ALWAYS = frozenset({".git", "__pycache__", ".venv", ".tpuctl-bundle", DATA_LIST})
WRITTEN = ("/tpuctl.yaml", "/tpuctl.schema.json", "/*-report.html", "/tpuctl-support-*.zip")
"""
Files that tpuctl itself reads or writes: a change of them is no change of the code.

The user's patterns override these and those of `KEY_FILES`.
"""


class PatternReason(Enum):
    """Whose pattern excluded a path: no pattern, the user's, tpuctl's for keys, tpuctl's for everything else."""

    NONE = "none"
    USER = "user"
    KEY = "key"
    OURS = "ours"


@dataclass(frozen=True)
class PatternVerdict:
    """Whether a path is excluded, why, and by which line, for patterns of the user."""

    excluded: bool
    reason: PatternReason = PatternReason.NONE
    line: PatternLine | None = None

    @property
    def allowed(self) -> bool:
        """Return whether a `!` pattern of the user includes the path."""
        return not self.excluded and self.reason is PatternReason.USER


@dataclass(frozen=True)
class _FolderPatterns:
    """The patterns of one folder ("" or ending in "/", relative to the source), and their *lines*."""

    prefix: str
    spec: GitIgnoreSpec
    reason: PatternReason = PatternReason.USER
    lines: tuple[PatternLine, ...] = ()


@dataclass(frozen=True)
class Patterns:
    """The patterns that apply in a folder: its own first, then those of its parents."""

    levels: tuple[_FolderPatterns, ...] = ()

    def entering(self, folder: Path, prefix: str) -> "Patterns":
        """
        Return the patterns that apply in *folder*, whose path relative to the source is *prefix*.

        Raise UsageError for a pattern that cannot be parsed.
        """
        patterns: list[tuple[str, PatternLine]] = []
        for name in FILES:
            file = folder / name
            if file.is_file():
                # pathspec drops empty lines, so the list of places must drop them too.
                patterns += [
                    (line, PatternLine(prefix + name, n)) for n, line in enumerate(_lines(file), 1) if line
                ]
        if not patterns:
            return self
        try:
            spec = _compiled([line for line, _ in patterns])
        except ValueError as error:
            raise UsageError(
                f"{folder / FILES[1]} or {FILES[0]}: a pattern is not valid: {error}",
                changed="nothing was sent",
                hint="correct the line; the syntax is that of .gitignore",
            ) from error
        places = tuple(place for _, place in patterns)
        return Patterns((_FolderPatterns(prefix, spec, lines=places), *self.levels))

    def judge(self, path: str, name: str, folder: bool) -> PatternVerdict:
        """Decide whether *path* (relative to the source) is excluded; the nearest pattern wins."""
        if name in ALWAYS:
            return PatternVerdict(excluded=True, reason=PatternReason.OURS)
        for level in self.levels:
            inner = path[len(level.prefix) :] + ("/" if folder else "")
            found = level.spec.check_file(inner)
            if found.include is not None:
                line = level.lines[found.index] if level.lines and found.index is not None else None
                return PatternVerdict(bool(found.include), level.reason, line)
        return PatternVerdict(excluded=False)


def first_patterns(written: Sequence[str] = ()) -> Patterns:
    """Return the patterns that apply before any file of the user; *written* adds to WRITTEN."""
    ours = {PatternReason.KEY: KEY_FILES, PatternReason.OURS: (*WRITTEN, *written)}
    return Patterns(tuple(_FolderPatterns("", _compiled(lines), reason) for reason, lines in ours.items()))


def named_like_a_key(path: str) -> bool:
    """Return whether tpuctl's own patterns exclude the path as a key."""
    return bool(_compiled(KEY_FILES).match_file(path))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            changed="nothing was sent",
            hint=f"make it readable: chmod u+r {file}",
        ) from error


def _compiled(lines: Iterable[str]) -> GitIgnoreSpec:
    # By default pathspec picks the fastest engine installed, and re2 rejects names that are not UTF-8.
    return GitIgnoreSpec.from_lines(lines, backend="simple")
