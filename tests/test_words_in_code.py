"""One word for one thing: names in the code use the words of docs/words.md, not those of before it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTEAD = {
    "beacon": "heartbeat",
    "dear": "on_demand",
    "glance": "snapshot, observation",
    "heard": "heartbeat",
    "histories": "records",
    "kept": "stored, retained, or what it is",
    "left": "remaining, rest, leftover",
    "marked": "labelled, or what it is",
    "mute": "never_reported, silent",
    "noted": "recorded",
    "road": "route",
    "seal": "checksum",
    "sealed": "with_checksum",
    "seen": "observed, observation",
    "sighting": "observation",
    "sightings": "observations",
    "stranger": "foreign",
    "strangers": "foreign",
    "tell": "report, notify",
    "told": "reported, notified",
    "unchanged": "changed",
    "unheard": "nothing_reported",
}
"""A word that names no longer hold, and what it is called."""
FINE = {"first_seen", "FirstSeen", "UNCHANGED", "assert_nothing_left", "ttl_left"}
"""The word for a time in the record; the state of a push and a key in `--json`; a name for users' tests."""
ROOMS = sorted(path.name for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists())


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield each name that a module defines: functions, classes, arguments, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node.name, ast.unparse(node.args)) == ("tell", "self"):
            continue  # a method of Python's files
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def old_words(name: str) -> set[str]:
    """Return the words of a name, in snake or camel case, that are no longer used."""
    if name in FINE:
        return set()
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")) & INSTEAD.keys()


def found_in(room: str) -> dict[str, set[str]]:
    """Return the names with old words, by file."""
    files = {str(path.relative_to(ROOT)): path for path in (ROOT / "orchestrator" / room).rglob("*.py")}
    found = {
        file: {name for name in names_in(ast.parse(path.read_text())) if old_words(name)}
        for file, path in files.items()
    }
    return {file: names for file, names in found.items() if names}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_one_word_for_one_thing(room: str) -> None:
    """The second word for a thing makes readers look for a second thing."""
    assert found_in(room) == {}
