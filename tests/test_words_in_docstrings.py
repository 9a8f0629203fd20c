"""Docstrings and comments name who acts and what is promised: no riddle words, no echo of a name."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kit.source import nodes

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1] / "orchestrator"
ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())
RIDDLES = re.compile(
    r"\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Aa]new|two looks|next look|that many looks|in sight"
    r"|out of sight|looks? again)\b"
)
"""Words that hide who acts, or that no tool prints: say "another process", "the user", "unknown", "observed"."""
ON_PAGES = {"rule", "rule_of_file", "click.command"}
"""Decorators of functions whose docstrings are text of docs/doctor.md, docs/check.md and docs/commands.md."""
FILLERS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and are as at be by describe for give given has have hold in is it its name of on or return returns"
        " say that the this to whether with yield",
    )
)
"""Words that say nothing about the thing itself."""


def named_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each class and function."""
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node.name, text


def prose(code: str, parts: Sequence[ast.AST]) -> Iterator[str]:
    """Yield each comment, docstring and text under a field, but those that a page prints."""
    printed = {
        id(node.body[0])
        for node in parts
        if isinstance(node, ast.FunctionDef)
        if any(ast.unparse(one).partition("(")[0] in ON_PAGES for one in node.decorator_list)
    }
    for node in parts:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in printed:
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake or camel case, without the s of a plural."""
    return {word.rstrip("s") for word in re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")}


def is_echo(name: str, docstring: str) -> bool:
    """Return whether a docstring says no more than the name that it belongs to."""
    said = {word.rstrip("s") for word in re.findall(r"[a-z0-9]+", docstring.lower()) if word not in FILLERS}
    return said <= words_of(name)


def files(room: str) -> Iterator[tuple[str, Path]]:
    """Yield each module of a room, by its name in the package and as a file."""
    for path in sorted((ROOT / room).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_and_no_comment_hides_who_acts(room: str) -> None:
    """A reader must know whether a user, a machine or another process is meant."""
    found = [
        f"{file}: {text}"
        for file, path in files(room)
        for text in prose(path.read_text(), nodes(path))
        if RIDDLES.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_what_returns_yes_or_no_says_so_in_one_form(room: str) -> None:
    """Two forms for one thing make a reader look for two things."""
    named = (
        f"{file}: {name}"
        for file, path in files(room)
        for name, text in named_docstrings(path)
        if text.startswith("Say whether")
    )
    assert list(named) == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_docstring_of_a_value_names_it(room: str) -> None:
    """A class that holds something is that thing; only what acts has a verb."""
    found = [
        f"{file}: {node.name}"
        for file, path in files(room)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and re.match("(Hold|Describe|Name|Remember)s? ", ast.get_docstring(node) or "")
    ]
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_only_repeats_its_name(room: str) -> None:
    """It says a promise, a unit, an error or a source, or it is left out."""
    found = [
        f"{file}: {name}: {text}"
        for file, path in files(room)
        for name, text in named_docstrings(path)
        if is_echo(name, text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "docstring", "echo"),
    [
        ("node_price", "Return the price of the node.", True),
        ("JobRows", "Hold a row of a job.", True),
        ("node_price", "Return USD per hour of the node, None if unknown.", False),
    ],
)
def test_an_echo_is_found(name: str, docstring: str, *, echo: bool) -> None:
    """Also in another order, in camel case and in the plural."""
    assert is_echo(name, docstring) is echo


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('def f():\n    """Return it anew."""\n', 1),
        ("x = 1  # somebody wrote it\n", 1),
        ('x = 1\n"""Nobody knows."""\n', 1),
        ('@rule("a", B)\ndef f():\n    """Look for what nobody has."""\n', 0),
        ('say("nobody")\n', 0),
    ],
)
def test_a_riddle_is_found(code: str, count: int) -> None:
    """In docstrings, comments and texts under fields; what a page prints has tests of its own."""
    assert sum(bool(RIDDLES.search(text)) for text in prose(code, list(ast.walk(ast.parse(code))))) == count
