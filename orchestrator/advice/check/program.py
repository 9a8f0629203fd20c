"""Find the job's program: the files of the source folder that its command starts, and what they import."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from orchestrator.advice.check.code import Code, Import
from orchestrator.advice.check.findings import SourceFacts
from orchestrator.domain.source.exposed_services import joined
from orchestrator.domain.spec import Spec

# Not after a dollar or a slash: "$DIR/train.py" and /opt/train.py are not in the source folder.
_SCRIPT: Final = re.compile(r"(?<![\w$./-])(?:\./)?([\w][\w./-]*\.(?:py|sh|bash))(?![\w.])")
_STARTED: Final = re.compile(
    r"(?:^|[;&|(]\s*|\bexec\s+)python3?(?:\.\d+)?(?:\s+-[uBEOsI]+)*\s+(?:\./)?(\w[\w./-]*\.py)(?![\w.])"
)
_MODULE: Final = re.compile(r"(?:^|[\s;&|])-m\s+([A-Za-z_][\w.]*)")
_RUNNERS: Final = frozenset({
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "pip", "venv", "site",
})  # fmt: skip
_ROOTS: Final = ("", "src", "lib")


@dataclass(frozen=True)
class Program:
    """The files that run; *whole* says that every file in the command was found and read."""

    code: tuple[Code, ...]
    whole: bool

    def imports(self) -> Iterator[tuple[Code, Import]]:
        """Yield the absolute imports of all files, each with its file."""
        for code in self.code:
            for one in code.imports:
                if not one.level:
                    yield code, one


def program(spec: Spec, facts: SourceFacts) -> Program:
    """Return the job's program; without a file of the source folder it is empty and not whole."""
    by_path = {code.file: code for code in facts.code}
    scripts: dict[str, str] = {}
    for line in facts.lines:
        if not line.text.lstrip().startswith("#"):
            scripts[line.file] = f"{scripts.get(line.file, '')}\n{line.text}"
    texts, visited, first, whole = [joined(spec.job.command)], set[str](), list[Code](), not facts.unread
    while texts:
        text = texts.pop()
        for name in _SCRIPT.findall(text):
            path = _find(name, (*by_path, *scripts))
            if path is None:
                whole = False
            elif path in by_path:
                first.append(by_path[path])
            # Scripts may call each other in a circle.
            elif path not in visited:
                visited.add(path)
                texts.append(scripts[path])
        for name in _MODULE.findall(text):
            started = _module(name, "", by_path) if name not in _RUNNERS else ()
            first += started
            whole = whole and (bool(started) or name in _RUNNERS)
    found = _closure(first, by_path)
    return Program(found, whole and bool(found))


def not_there(spec: Spec, facts: SourceFacts) -> tuple[str, ...]:
    """Return the Python files that the command starts directly and that are not in the source folder."""
    paths = (*(code.file for code in facts.code), *facts.unread)
    started = dict.fromkeys(_STARTED.findall(joined(spec.job.command)))
    return tuple(name for name in started if _find(name, paths) is None)


def shell_texts(spec: Spec, facts: SourceFacts) -> list[tuple[str, str]]:
    """Return place and text of all shell lines that the job runs: setup, command, and the scripts they name."""
    found = [("job.setup", joined(spec.job.setup)), ("job.command", joined(spec.job.command))]
    scripts = {line.file for line in facts.lines}
    pending, visited = [text for _, text in found], set[str]()
    while pending:
        for name in _SCRIPT.findall(pending.pop()):
            path = _find(name, tuple(scripts))
            if path is None or path in visited:
                continue
            visited.add(path)
            lines = [x for x in facts.lines if x.file == path and not x.text.lstrip().startswith("#")]
            found += [(line.where, line.text) for line in lines]
            pending += [line.text for line in lines]
    return found


def is_local(one: Import, code: Code, facts: SourceFacts) -> bool:
    """Return whether an import is of a file or folder of the source."""
    folder = str(PurePosixPath(code.file).parent)
    top = one.name.partition(".")[0]
    roots = {*_ROOTS, "" if folder == "." else folder}
    heads = {str(PurePosixPath(root) / top) if root else top for root in roots}
    return any(
        other.file in {f"{head}.py" for head in heads} or any(other.file.startswith(f"{h}/") for h in heads)
        for other in facts.code
    )


def _find(name: str, paths: tuple[str, ...]) -> str | None:
    """Return the file that a command names, whatever its working folder: the shortest matching path."""
    plain = str(PurePosixPath(name))
    fits = [path for path in paths if path == plain or path.endswith(f"/{plain}")]
    return min(fits, key=lambda path: (path != plain, len(path)), default=None)


def _closure(first: list[Code], by_path: dict[str, Code]) -> tuple[Code, ...]:
    found: dict[str, Code] = {}
    pending = list(first)
    while pending:
        code = pending.pop()
        if code.file in found:
            continue
        found[code.file] = code
        folder = PurePosixPath(code.file).parent
        for one in code.imports:
            above = folder
            for _ in range(one.level - 1):
                above = above.parent
            base = "" if str(above) == "." else str(above)
            pending += _module(one.name, base, by_path, relative=bool(one.level))
    return tuple(sorted(found.values(), key=lambda code: code.file))


def _module(name: str, folder: str, by_path: dict[str, Code], *, relative: bool = False) -> tuple[Code, ...]:
    """Return the files that an import of *name* runs: those of its packages, and its own."""
    # The script's own folder first, as in Python.
    roots = (folder,) if relative else dict.fromkeys((folder, *_ROOTS))
    parts = name.split(".")
    for root in roots:
        start = f"{root}/" if root else ""
        hits = []
        for count in range(1, len(parts) + 1):
            path = start + "/".join(parts[:count])
            hits += [
                by_path[p]
                for p in (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
                if p in by_path
            ]
        if hits:
            return tuple(hits)
    return ()
