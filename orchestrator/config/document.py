"""Parse YAML to plain values, with line and column of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from orchestrator.config.config_error import ConfigError, FileFinding
from orchestrator.config.setting_types import SettingPath

# Far larger than any deployment file; the parser takes seconds for each MB.
MAX_BYTES = 1 << 20
# Aliases may repeat a part of the file without end; no deployment file comes near this limit.
_MOST_NODES = 10_000

_TEXT_TAGS = ("str", "timestamp")
_VALUE_TAGS = ("null", "bool", "int", "float")
_TAG_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Mark:
    """The line and column, from 1, of a key (of a list's item: of the item) and of its value."""

    key: tuple[int, int]
    value: tuple[int, int]


@dataclass
class Document:
    """The plain data of a file, the marks of its parts, and the findings about its form."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[SettingPath, Mark] = field(default_factory=dict)
    findings: list[FileFinding] = field(default_factory=list)

    def add_finding(self, position: tuple[int, int], path: SettingPath, message: str, hint: str = "") -> None:
        """Add a finding at a position, (line, column)."""
        self.findings.append(FileFinding(self.name, *position, path, message, hint))


def parse(raw: bytes, name: str) -> Document:
    """Parse a deployment file; raise ConfigError if it is not one YAML mapping."""
    text = _decode(raw, name)
    node, resolve = _compose(text, name)
    document = Document(name)
    if node is None:
        raise _refuse(name, (1, 1), "the file is empty", "start with: tpuctl init")
    data = _Reader(document, resolve).read(node, ())
    if not isinstance(data, Mapping):
        raise _refuse(
            name, _position(node), "the file is not a mapping of settings", "start with: tpuctl init"
        )
    document.data = dict(data)
    return document


def _decode(raw: bytes, name: str) -> str:
    if len(raw) > MAX_BYTES:
        raise _refuse(
            name,
            (1, 1),
            f"the file has {len(raw)} bytes",
            "a deployment file is small; is this the right file?",
        )
    try:
        # With or without the byte order mark of Windows editors.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = _position_at(raw[: error.start].decode("utf-8-sig", "replace"))
        raise _refuse(name, position, "the text is not UTF-8", "save the file as UTF-8") from error


# A command reads its file several times, and the pure parser takes a millisecond for each dozen lines.
@lru_cache(maxsize=16)
def _compose(text: str, name: str) -> tuple[Any, Any]:
    """Return the root node (None if the file is empty) and a function that constructs a scalar's value."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    # Composed to nodes, not loaded: only nodes have a position, and no tag in the file constructs an object.
    yaml = YAML(typ="safe", pure=True)
    try:
        return yaml.compose(text), yaml.constructor.construct_object
    except ReaderError as error:
        position = _position_at(text[: error.position])
        raise _refuse(name, position, "a control character is not allowed here", "remove it") from error
    except MarkedYAMLError as error:
        raise _syntax(name, text, error) from error
    except RecursionError as error:
        raise _refuse(
            name, (1, 1), "brackets or lists are nested too deeply", "close each bracket"
        ) from error
    except (YAMLError, ValueError) as error:
        raise _refuse(
            name, (1, 1), f"not valid YAML: {type(error).__name__}", "start with: tpuctl init"
        ) from error
    except (AttributeError, AssertionError, IndexError, KeyError, TypeError) as error:
        # For some broken files the parser raises errors other than its own.
        raise _refuse(
            name, (1, 1), "not valid YAML", "look for stray brackets, tags and '%' lines"
        ) from error


def _syntax(name: str, text: str, error: Any) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    found = str(error.problem or error.context or "not valid YAML")
    line = (text.splitlines() or [""])[min(position[0], len(text.splitlines())) - 1] if text else ""
    # ruamel's errors have no codes: these words are all that tells a second document from other mistakes.
    if "found another document" in found or "single document" in str(error.context):
        return _refuse(
            name, position, "a second YAML document starts here", "keep one document; remove the line ---"
        )
    if "\t" in line[: position[1]]:
        return _refuse(name, position, "a tab where YAML allows only spaces", "indent with spaces")
    if error.problem_mark and error.context:
        found = f"{error.context}: {found}"
    return _refuse(name, position, found, "check the indentation, quotes and brackets before this place")


def _refuse(name: str, position: tuple[int, int], message: str, hint: str) -> ConfigError:
    return ConfigError((FileFinding(name, *position, (), message, hint),))


def _position(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _position_at(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Reader:
    """Convert nodes to plain values and record the position of each."""

    def __init__(self, document: Document, resolve: Any) -> None:
        self._document = document
        self._resolve = resolve
        self._count = 0

    def read(self, node: Any, path: SettingPath) -> Any:
        """Return the value of *node*."""
        self._count += 1
        # An alias is expanded each time it is used, so a short file can be endless.
        if self._count > _MOST_NODES or len(path) > 20:
            raise _refuse(
                self._document.name,
                _position(node),
                "has endless repetition or nesting",
                "write the values out",
            )
        kind = type(node).__name__
        if kind == "MappingNode":
            return self._mapping(node, path)
        if kind == "SequenceNode":
            return self._sequence(node, path)
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: SettingPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if type(key).__name__ != "ScalarNode":
                self._document.add_finding(_position(key), path, "a key must be plain text")
                continue
            name = str(key.value)
            below = (*path, name)
            # Merged values would have no position of their own for findings.
            if name == "<<":
                self._document.add_finding(
                    _position(key), path, "merge keys (<<) are not supported", "write the keys out"
                )
            # YAML silently uses the last one: a second `spot:` further down could cost money unnoticed.
            elif name in found:
                first = self._document.marks[below].key[0]
                hint = f"it is already on line {first}; keep one"
                self._document.add_finding(_position(key), below, "the key is given twice", hint)
            else:
                self._document.marks[below] = Mark(_position(key), _position(value))
                found[name] = self.read(value, below)
        return found

    def _sequence(self, node: Any, path: SettingPath) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            below = (*path, index)
            self._document.marks[below] = Mark(_position(item), _position(item))
            values.append(self.read(item, below))
        return values

    def _scalar(self, node: Any, path: SettingPath) -> Any:
        tag = str(node.tag).removeprefix(_TAG_PREFIX)
        # Dates stay text: no setting is a date, and a name may look like one.
        if tag in _TEXT_TAGS:
            return str(node.value)
        try:
            # Only these tags: any other could make the constructor do more than plain data.
            if tag in _VALUE_TAGS:
                return self._resolve(node)
        except (ValueError, TypeError, OverflowError, IndexError, KeyError, AttributeError):
            self._document.add_finding(_position(node), path, "is not a valid value", "put it in quotes")
            return None
        self._document.add_finding(
            _position(node), path, f"the tag {str(node.tag)[:60]} is not supported", "remove it"
        )
        return None
