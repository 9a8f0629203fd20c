"""A failed test is a line in a list, so its name says what is checked, in the words of today."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.source import nodes
from tests.test_words_in_code import INSTEAD

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
RIDDLES = INSTEAD.keys() | {"anew", "everybody", "nobody", "somebody", "whoever"}
"""Words that say in no test's name what is checked or who acts: again, no watcher, another process, the user."""
POINTING = re.compile(
    r"test_(both|he|it|its|one_(can|is|that|who|with|without)|she|that|there_are_both|they)(_|$)"
)
"""Beginnings of a name that has no subject: it is read alone, in the list of what failed."""


def riddles_in(name: str) -> set[str]:
    """Return the words of a test's name that have another word now, and a beginning without a subject."""
    pointing = POINTING.match(name)
    return (set(name.lower().split("_")) & RIDDLES) | ({pointing[1]} if pointing else set())


def names_for_tests(path: Path) -> Iterator[str]:
    """Yield the names of a file of tests and of the tests in it."""
    yield path.stem
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in (ROOT / "tests").rglob("test_*.py")}),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_name_of_a_test_is_a_sentence_in_the_words_of_today(folder):
    """A failed test is a line in a list: whoever reads it knows the glossary, and not the words of before it."""
    found = [
        f"{path.relative_to(ROOT)}: {name}: {', '.join(sorted(bad))}"
        for path in sorted(folder.glob("*.py"))
        for name in names_for_tests(path)
        if (bad := riddles_in(name))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("test_a_stall_is_told_once", {"told"}),
        ("test_the_setup_runs_anew", {"anew"}),
        ("test_there_are_both", {"there_are_both"}),
        ("test_one_that_runs_is_not_gone", {"one_that"}),
        ("test_one_bucket_serves_one_deployment", set()),
        ("test_the_leftovers_of_a_push_are_removed", set()),
    ],
)
def test_an_old_word_in_the_name_of_a_test_is_found(name, bad):
    """Whole words only."""
    assert riddles_in(name) == bad
