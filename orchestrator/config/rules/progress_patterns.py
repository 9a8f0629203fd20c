"""
Accept only patterns of `job.progress` that no line of output can make slow.

Python's `re` backtracks and cannot be interrupted. The time depends on the repeats in the pattern, so those
are limited here, and the agent cuts each line.
"""

import json
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from orchestrator.domain.spec import ProgressSpec, Spec

# Private modules of Python: opcodes are compared by name, so an unknown one is recognised as such.
if sys.version_info >= (3, 11):
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as codes
    import sre_parse as parser

MAX_LENGTH = 300
"""Most characters of a pattern."""
MAX_WIDE = 2
"""Most repeats that match nearly anything; each one multiplies the time by the length of the line."""
MAX_REPEATS = 8
_BOUNDED = 64
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_REFUSED = {
    "POSSESSIVE_REPEAT": "a possessive repeat, which the machine's Python may not support",
    "ATOMIC_GROUP": "an atomic group, which the machine's Python may not support",
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a condition on a group",
}


def pattern_error(key: str, pattern: str) -> tuple[str, str]:
    """Return what is wrong with the pattern of *key*, and what to do; two empty texts if it is accepted."""
    if len(pattern) > MAX_LENGTH:
        return (
            f"has {len(pattern)} characters; at most {MAX_LENGTH} are allowed",
            "match only a part of the line",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Bytes, as in the agent: \d and \w are ASCII there.
            compiled = re.compile(pattern.encode())
            tree = parser.parse(pattern.encode())  # type: ignore[arg-type]
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as error:
        return f"is not a regular expression: {error}", "see docs.python.org/3/library/re.html"
    if compiled.groups != 1 and key not in compiled.groupindex:
        hint = f"put parentheses around the number, or name its group: (?P<{key}>...)"
        return f"has {compiled.groups} groups, so it is unclear which one is the number", hint
    return _slow(tree)


def progress_text(spec: Spec) -> str:
    """
    Return the agent's setting for reading progress: a word, or patterns as JSON.

    Empty if the agent should find out by itself.
    """
    asked = spec.job.progress
    if isinstance(asked, ProgressSpec):
        return json.dumps({key: text for key, text in asdict(asked).items() if text}, sort_keys=True)
    return "" if asked == "auto" else asked


def _slow(tree: Any) -> tuple[str, str]:
    """Return why a line could be slow to match, and what to do; two empty texts if none can."""
    wide = every = 0
    before: frozenset[int] = frozenset()
    for name, value, inside in _walk(tree, 0):
        if name in _REFUSED:
            return f"has {_REFUSED[name]}", "remove it"
        if name == "BRANCH" and inside:
            return (
                "has alternatives inside a repeat, which can take for ever",
                "remove the repeat",
            )
        if name not in _REPEATS:
            before = frozenset() if name in {"LITERAL", "IN", "NOT_LITERAL", "ANY"} and not inside else before
            continue
        _, most, part = value
        if inside:
            return (
                "has nested repeats, which can take for ever",
                "repeat a single character only",
            )
        if most == codes.MAXREPEAT or most > _BOUNDED:
            here = _bytes(part)
            every += 1
            # Two neighbours that match the same bytes are as slow as one wide repeat.
            wide += len(here) > 128 or bool(here & before)
            before = here
    if wide > MAX_WIDE or every > MAX_REPEATS:
        hint = f"at most {MAX_WIDE} repeats may match nearly anything, such as .*"
        return "has so many repeats that a long line can take for ever", hint
    return "", ""


def _walk(tree: Any, inside: int) -> Iterator[tuple[str, Any, int]]:
    """Yield every part of a parsed pattern in order: its name, its value, and the number of repeats around it."""
    for code, value in tree:
        name = str(code)
        yield name, value, inside
        if name in _REPEATS:
            yield from _inner(value[2], inside + (1 if value[1] > 1 else 0))
        elif name == "SUBPATTERN":
            yield from _walk(value[-1], inside)
        elif name == "BRANCH":
            for part in value[1]:
                yield from _walk(part, inside)
        elif name in {"ASSERT", "ASSERT_NOT"}:
            yield from _walk(value[1], inside)


def _inner(tree: Any, inside: int) -> Iterator[tuple[str, Any, int]]:
    """Yield the parts of what is repeated, except a single character, which belongs to its repeat."""
    if len(tree) != 1 or str(tree[0][0]) not in {"LITERAL", "IN", "NOT_LITERAL", "ANY", "CATEGORY"}:
        yield from _walk(tree, inside)


def _bytes(tree: Any) -> frozenset[int]:
    """Return the bytes that a repeated part can begin with; all bytes if that is hard to find out."""
    if len(tree) != 1:
        return frozenset(range(256))
    code, value = tree[0]
    name = str(code)
    if name == "LITERAL":
        return frozenset({value})
    if name == "NOT_LITERAL":
        return frozenset(range(256)) - {value}
    if name != "IN":
        return frozenset(range(256))
    found: set[int] = set()
    for kind, part in value:
        found |= _class(str(kind), part)
    return frozenset(range(256)) - found if str(value[0][0]) == "NEGATE" else frozenset(found)


def _class(kind: str, part: Any) -> set[int]:
    if kind == "LITERAL":
        return {part}
    if kind == "RANGE":
        return set(range(part[0], part[1] + 1))
    if kind != "CATEGORY":
        return set()
    name = str(part).removeprefix("CATEGORY_")
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
    pattern = re.compile(f"\\{letter.upper() if name.startswith('NOT_') else letter}".encode())
    return {byte for byte in range(256) if pattern.match(bytes([byte]))}
