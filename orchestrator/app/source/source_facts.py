"""Collect facts about the source folder for the rules of `tpuctl check`, within bounds."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from stat import S_ISREG

from orchestrator.advice.check.code import Code, read_code
from orchestrator.advice.check.findings import KeyFile, Line, Requirement, SourceFacts
from orchestrator.advice.check.installs import requirement
from orchestrator.app.source.patterns import named_like_a_key
from orchestrator.app.source.source_files import SourceEntry, source_files
from orchestrator.domain.source.exposed_services import JUPYTER
from orchestrator.domain.source.key_files import SMALL, keys_in

FILE_BYTES = 1 << 20
ALL_BYTES = 8 << 20
MAX_FILES = 2000
"""Files to read at most; the rest is reported as not read."""

_SHELL = (".sh", ".bash")
_SETTINGS = (".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".conf", ".gin", ".env", ".ipynb")
_NAMED = ("Makefile", "Dockerfile", "Procfile")
_TEXT = (".txt", ".text", ".jsonl", ".csv", ".tsv", ".tok", ".raw")
# Anchored at the end only, to match names such as dev-requirements.txt.
_LIST = re.compile(r"(requirements|constraints)[\w.-]*\.(txt|in)$")
_PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg", "environment.yml", "environment.yaml", "uv.lock")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_VARIABLE = re.compile(r"\bTPUCTL_[A-Z_]+\b")


def gather(source: Path, skip: Path | None = None) -> SourceFacts:
    """
    Return the facts about *source* without the file *skip*, the deployment file.

    Raise UsageError, as `up` would, for a folder that cannot be pushed.
    """
    root = source.resolve()
    found = source_files(source)
    entries = [e for e in found.entries if S_ISREG(e.mode) and not e.link]
    skipped = skip.resolve() if skip else None
    reader = _Reader(root)
    for entry in entries:
        if root / entry.path != skipped:
            reader.at(entry)
    paths = frozenset(entry.path for entry in found.entries)
    facts = replace(reader.facts(), excluded=tuple(found.excluded), files=paths)
    return replace(facts, keys=tuple(_keys(root, entries)))


def _keys(root: Path, entries: Sequence[SourceEntry]) -> Iterator[KeyFile]:
    """Yield files to be sent that are keys, by content or by name."""
    for entry in entries:
        kinds: list[str] = []
        if entry.size <= SMALL:
            with contextlib.suppress(OSError):
                kinds = keys_in((root / entry.path).read_bytes())
        if not kinds and entry.allowed and named_like_a_key(entry.path):
            kinds = ["a key, by its name"]
        if kinds:
            yield KeyFile(entry.path, kinds[0], entry.allowed)


class _Reader:
    """Collects facts file by file, within the bounds."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._code: list[Code] = []
        self._lines: list[Line] = []
        self._requirements: list[Requirement] = []
        self._variables: set[str] = set()
        self._projects: set[str] = set()
        self._text_bytes = 0
        self._unread: list[str] = []
        self._read = 0
        self._files = 0

    def facts(self) -> SourceFacts:
        """Return what was found, with the files that could not be read."""
        return SourceFacts(
            tuple(self._code),
            tuple(self._lines),
            tuple(self._requirements),
            frozenset(self._variables),
            self._text_bytes,
            tuple(self._unread),
            projects=frozenset(self._projects),
        )

    def at(self, entry: SourceEntry) -> None:
        """Add the facts of one file."""
        path = PurePosixPath(entry.path)
        listed = _LIST.search(path.name) is not None
        if path.suffix in _TEXT and not listed:
            self._text_bytes += entry.size
            return
        program = path.suffix in (".py", *_SHELL) or path.name in _NAMED or self._is_script(entry)
        if not (program or listed or path.suffix in _SETTINGS or path.name == ".env"):
            return
        text = self._text(entry)
        if text is None:
            # Large files in a settings format are usually data; only an unread program is worth reporting.
            self._unread += [entry.path] if program else []
            return
        self._variables.update(_VARIABLE.findall(text))
        if (program and path.suffix != ".py") or listed or JUPYTER.search(f"{path} {text}"):
            self._lines.extend(_lines(entry.path, text))
        if listed:
            found = (requirement(entry.path, line, n) for n, line in enumerate(text.splitlines(), 1))
            self._requirements.extend(package for package in found if package)
        if path.name in _PROJECTS:
            self._projects.update(word.replace("_", "-").lower() for word in _WORD.findall(text))
        if path.suffix == ".py":
            self._python(entry.path, text)

    def _is_script(self, entry: SourceEntry) -> bool:
        """Return whether an executable file without a suffix starts like a script."""
        if "." in PurePosixPath(entry.path).name or not entry.mode & 0o100:
            return False
        try:
            with (self._root / entry.path).open("rb") as file:
                return file.read(2) == b"#!"
        except OSError:
            return False

    def _python(self, path: str, text: str) -> None:
        try:
            self._code.append(read_code(path, text))
        # Python of another version, or hostile to parsers: reported as not read.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._unread.append(path)

    def _text(self, entry: SourceEntry) -> str | None:
        """Return the file's text, None if it exceeds the bounds or is unreadable."""
        self._files += 1
        if entry.size > FILE_BYTES or self._read + entry.size > ALL_BYTES or self._files > MAX_FILES:
            return None
        # Counted before reading, so that unreadable files use up the bounds too.
        self._read += entry.size
        try:
            # Cut again, as the file may have grown. utf-8-sig drops the mark that Windows editors write.
            return (self._root / entry.path).read_bytes()[:FILE_BYTES].decode("utf-8-sig", "replace")
        except OSError:
            return None


def _lines(path: str, text: str) -> Iterator[Line]:
    """Yield the lines of a file, joining those that a backslash continues, with the first one's number."""
    first, so_far = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\"):
            so_far += line[:-1] + " "
            continue
        yield Line(path, first, so_far + line)
        first, so_far = 0, ""
    if so_far:
        yield Line(path, first, so_far)
