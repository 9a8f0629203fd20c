"""What is known about the source folder. Whoever reads the folder fills this in; the rules never read files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from orchestrator.advice.preflight.code import Call, Code


@dataclass(frozen=True)
class Line:
    """Hold one line of a script or a settings file; lines that end in a backslash are joined with the next."""

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
    Hold one line of a list of packages: the *name* in lower case with `_` as `-`, and the *pin* behind `==`.

    *conditional* says that it is for some machines only (`; python_version < "3.11"`).
    """

    where: str
    name: str
    pin: str = ""
    conditional: bool = False

    @property
    def list(self) -> str:
        """Return which list it stands in: packages of one list are installed together."""
        return self.where.partition(":")[0]


@dataclass(frozen=True)
class AtHome:
    """
    Hold a file, or a whole folder (its path ends in "/"), that is not sent.

    *line* is the user's rule that says so (file:line), empty for tpuctl's own rules about keys; *more* says
    that the folder is larger than was counted.
    """

    path: str
    line: str
    files: int
    size: int
    more: bool = False

    @property
    def is_key(self) -> bool:
        """Say whether it stays at home because of its name, as keys do."""
        return not self.line


@dataclass(frozen=True)
class KeyFile:
    """Hold a file that is sent and is a key by its name or content; *asked_for*: a `!` rule of the user says so."""

    path: str
    kind: str
    asked_for: bool


@dataclass(frozen=True)
class SourceFacts:
    """
    Hold one look at the source folder.

    *text_bytes* are the bytes of training text in it, *variables* the TPUCTL_ names that occur anywhere in
    its programs, *projects* the words of files like pyproject.toml, which name packages, *unread* the
    programs that were too large or not readable as what they claim to be. *data_bytes* is the size of
    job.data on this computer.
    """

    code: tuple[Code, ...] = ()
    lines: tuple[Line, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    variables: frozenset[str] = field(default_factory=frozenset)
    text_bytes: int = 0
    unread: tuple[str, ...] = ()
    at_home: tuple[AtHome, ...] = ()
    projects: frozenset[str] = field(default_factory=frozenset)
    keys: tuple[KeyFile, ...] = ()
    data_bytes: int = 0

    def uses(self, *modules: str) -> bool:
        """Say whether any Python file imports one of the top-level *modules*."""
        return any(code.modules.intersection(modules) for code in self.code)

    def calls(self, names: Iterable[str] = (), methods: Iterable[str] = ()) -> Iterator[tuple[Code, Call]]:
        """Yield the calls of these full names, or of any object's method of these names."""
        wanted, last = frozenset(names), frozenset(methods)
        for code in self.code:
            for call in code.calls:
                if call.name in wanted or call.method in last:
                    yield code, call

    def pins(self, *names: str) -> tuple[tuple[int, ...], ...]:
        """Return the versions that the packages of these *names* are pinned to, as numbers."""
        pins = (numbers(found.pin) for found in self.requirements if found.name in names)
        return tuple(pin for pin in pins if pin)

    def pinned_below(self, version: tuple[int, ...], *names: str) -> bool:
        """Say whether one of the packages is pinned, and each pin is older than *version*."""
        pins = self.pins(*names)
        return bool(pins) and all(pin < version for pin in pins)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 13, 0) for 2.13.0+cpu."""
    found: list[int] = []
    for part in version.partition("+")[0].split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
