"""Define the facts about the source folder and the findings of rules. Rules never read files themselves."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from orchestrator.advice.check.code import Call, Code
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.source.excluded_paths import ExcludedPath
from orchestrator.domain.source.exposed_services import joined
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class Line:
    """One line of a script or a settings file; lines continued by a backslash are joined."""

    file: str
    number: int
    text: str

    @property
    def where(self) -> str:
        """Return the place as file:line."""
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Requirement:
    """
    What one place asks for: the *name* in lower case with `_` as `-`, and the *pin* after `==`.

    The place is a *file* and its *line*, or the setting `job.setup`, whose lines are not counted.

    *conditional* says that it applies to some machines only (`; python_version < "3.11"`).
    """

    file: str
    name: str
    pin: str = ""
    conditional: bool = False
    line: int = 0

    @property
    def where(self) -> str:
        """Return the place as file:line."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class KeyFile:
    """A file that is sent although it is a key by name or content; *allowed* if a pattern with `!` allows it."""

    path: str
    kind: str
    allowed: bool


@dataclass(frozen=True)
class SourceFacts:
    """
    One examination of the source folder.

    *text_bytes* is the size of training text in it, *variables* the TPUCTL_ names anywhere in its programs,
    *projects* the words of files like pyproject.toml, which name packages, *unread* the programs that were
    too large or unreadable. *data_bytes* is the size of job.data on this computer, *files* are the paths of all
    that is sent.
    """

    code: tuple[Code, ...] = ()
    lines: tuple[Line, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    variables: frozenset[str] = field(default_factory=frozenset)
    text_bytes: int = 0
    unread: tuple[str, ...] = ()
    excluded: tuple[ExcludedPath, ...] = ()
    projects: frozenset[str] = field(default_factory=frozenset)
    keys: tuple[KeyFile, ...] = ()
    data_bytes: int = 0
    files: frozenset[str] = field(default_factory=frozenset)

    def uses(self, *modules: str) -> bool:
        """Return whether any Python file imports one of the top-level *modules*."""
        return any(code.modules.intersection(modules) for code in self.code)

    def calls(self, names: Iterable[str] = (), methods: Iterable[str] = ()) -> Iterator[tuple[Code, Call]]:
        """Yield the calls with these full names, or of methods with these names on any object."""
        wanted, last = frozenset(names), frozenset(methods)
        for code in self.code:
            for call in code.calls:
                if call.name in wanted or call.method in last:
                    yield code, call

    def pins(self, *names: str) -> tuple[tuple[int, ...], ...]:
        """Return the versions to which the packages of these *names* are pinned, as numbers."""
        pins = (numbers(found.pin) for found in self.requirements if found.name in names)
        return tuple(pin for pin in pins if pin)

    def pinned_below(self, version: tuple[int, ...], *names: str) -> bool:
        """Return whether one of the packages is pinned, and each pin is older than *version*."""
        pins = self.pins(*names)
        return bool(pins) and all(pin < version for pin in pins)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 13, 0) for 2.13.0+cpu."""
    found: list[int] = []
    for part in version.partition("+")[0].split("."):
        # A release candidate counts as its release, which is precise enough for these rules.
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


@dataclass(frozen=True)
class CheckFinding:
    """Say which *rule* found what (*message*, with its number), *where* (a setting or file:line), and a *hint*."""

    rule: str
    level: Level
    where: str
    message: str
    hint: str

    def as_dict(self) -> dict[str, str]:
        """Return the finding as `--json` prints it."""
        return {
            "rule": self.rule,
            "level": self.level.value,
            "where": self.where,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class RawFinding:
    """One result of a rule's function; *level* defaults to the rule's first one."""

    where: str
    message: str
    hint: str
    level: Level | None = None


Find = Callable[[Spec, Catalog, SourceFacts], Iterator[RawFinding]]


@dataclass(frozen=True)
class CheckRule:
    """Tie a stable *id* and the possible *levels* to the function that checks; docs/check.md has its docstring."""

    id: str
    levels: tuple[Level, ...]
    find: Find

    def __call__(self, spec: Spec, catalog: Catalog, facts: SourceFacts) -> tuple[CheckFinding, ...]:
        """Return what the rule finds, in the order of the source."""
        # The same line may be found twice, as a file and through the command that runs it.
        found = dict.fromkeys(self.find(spec, catalog, facts))
        return tuple(
            CheckFinding(self.id, bare.level or self.levels[0], bare.where, bare.message, bare.hint)
            for bare in found
        )


def rule(name: str, *levels: Level) -> Callable[[Find], CheckRule]:
    """Return a decorator that turns a function into the rule *name*; *levels* are the levels it may report."""
    return lambda find: CheckRule(name, levels, find)


_PIP: Final = re.compile(r"\b(?:pip3?\s+install|tpuctl-venv)\b((?:(?!\s--\s)[^;&|\n])*)")


def commands(spec: Spec, facts: SourceFacts) -> Iterator[tuple[str, str]]:
    """Yield place and text of everything that a shell runs: setup, command, and the lines of shell scripts."""
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
    """Yield the words of each `pip install` or `tpuctl-venv` in a command line, up to the next command."""
    for found in _PIP.finditer(text):
        try:
            yield tuple(shlex.split(found[1]))
        except ValueError:
            # An open quote: the command continues on another line.
            yield tuple(found[1].split())


def runs_fairseq(spec: Spec, facts: SourceFacts) -> str | None:
    """Return the first command line that trains with fairseq, or None."""
    return next((text for _, text in commands(spec, facts) if re.search(r"\bfairseq-train\b", text)), None)


def is_lost(path: str, committed: str = "") -> bool:
    """Return whether a literal path is on the machine's disk, outside *committed* (what the agent commits)."""
    plain = path.strip("\"'")
    # A path with a variable may lead anywhere, so it is not reported as lost.
    if not plain or "$" in plain or "://" in plain or plain.startswith(("-", "{")):
        return False
    return not (committed.startswith("/") and f"{plain}/".startswith(f"{committed.rstrip('/')}/"))
