"""Which paths of the source folder stay at home: .gitignore and .tpuctlignore, nested ones too, and keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pathspec import GitIgnoreSpec

from orchestrator.contract.object_names import DATA_LIST
from orchestrator.domain.key_files import KEY_FILES
from orchestrator.errors import UsageError

FILES = (".gitignore", ".tpuctlignore")
ALWAYS = frozenset({".git", "__pycache__", ".venv", ".tpuctl-bundle", DATA_LIST})
WRITTEN = ("/tpuctl.yaml", "/tpuctl.schema.json", "/*-report.html", "/tpuctl-support-*.zip")
"""
What tpuctl reads or writes itself: a comment in the file or a new report is no new code.

The user's rules win over these, and over those of `KEY_FILES`.
"""


class IgnoreReason(Enum):
    """Say whose rule decided: nobody's, the user's, tpuctl's for keys, or tpuctl's for all else."""

    NOBODY = "nobody"
    USER = "user"
    KEY = "key"
    OURS = "ours"


@dataclass(frozen=True)
class IgnoreVerdict:
    """Say whether a path stays at home, why, and by which line (file:line, for rules of the user)."""

    home: bool
    why: IgnoreReason = IgnoreReason.NOBODY
    line: str = ""

    @property
    def asked_for(self) -> bool:
        """Say whether a `!` rule of the user sends it."""
        return not self.home and self.why is IgnoreReason.USER


@dataclass(frozen=True)
class _Level:
    """Hold the rules of one folder ("" or ending in "/", relative to the source); *lines* name their places."""

    prefix: str
    spec: GitIgnoreSpec
    why: IgnoreReason = IgnoreReason.USER
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """Hold the rules that reach a folder: its own first, then those of the folders above."""

    levels: tuple[_Level, ...] = ()

    def entering(self, folder: Path, prefix: str) -> "Rules":
        """
        Return the rules inside *folder*, whose path relative to the source is *prefix*.

        Raise UsageError for a rule that cannot be read.
        """
        rules: list[tuple[str, str]] = []
        for name in FILES:
            file = folder / name
            if file.is_file():
                # The library counts no empty lines, so these must not be among the places either.
                rules += [(line, f"{prefix}{name}:{n}") for n, line in enumerate(_lines(file), 1) if line]
        if not rules:
            return self
        try:
            spec = _compiled([line for line, _ in rules])
        except ValueError as error:
            raise UsageError(
                f"{folder / FILES[1]} or {FILES[0]}: a rule is not valid: {error}",
                changed="Nothing was sent.",
                hint="Correct the line; the syntax is that of .gitignore.",
            ) from error
        places = tuple(place for _, place in rules)
        return Rules((_Level(prefix, spec, lines=places), *self.levels))

    def judge(self, path: str, name: str, folder: bool) -> IgnoreVerdict:
        """Tell whether *path* (relative to the source) stays at home; the nearest rule decides."""
        if name in ALWAYS:
            return IgnoreVerdict(home=True, why=IgnoreReason.OURS)
        for level in self.levels:
            inner = path[len(level.prefix) :] + ("/" if folder else "")
            found = level.spec.check_file(inner)
            if found.include is not None:
                line = level.lines[found.index] if level.lines and found.index is not None else ""
                return IgnoreVerdict(bool(found.include), level.why, line)
        return IgnoreVerdict(home=False)


def first_rules(written: Sequence[str] = ()) -> Rules:
    """Return the rules that hold where no file of the user's says anything; *written* adds to WRITTEN."""
    ours = {IgnoreReason.KEY: KEY_FILES, IgnoreReason.OURS: (*WRITTEN, *written)}
    return Rules(tuple(_Level("", _compiled(lines), why) for why, lines in ours.items()))


def named_like_a_key(path: str) -> bool:
    """Say whether tpuctl's own rules would keep the path at home as a key."""
    return bool(_compiled(KEY_FILES).match_file(path))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            changed="Nothing was sent.",
            hint=f"Make it readable: chmod u+r {file}",
        ) from error


def _compiled(lines: Iterable[str]) -> GitIgnoreSpec:
    # The library takes the quickest engine that is installed; re2 knows no names that are not UTF-8.
    return GitIgnoreSpec.from_lines(lines, backend="simple")
