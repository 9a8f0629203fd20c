"""One word for one thing in tests and benchmarks: what a test stands on, and a name of its own for each class."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.source import nodes

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
FOLDERS = ("orchestrator", "tests", "benchmarks")
LABS = {"bench", "box", "desk", "scene", "shelf", "stage"}
"""Words for what a test stands on, which is a lab. A stage is a part of `tpuctl selftest`."""
OF_SELFTEST = {
    "tests/advice/test_selftest.py",
    "tests/app/test_selftest_probes.py",
    "tests/scenarios/test_selftest.py",
}
OTHERS = ("tests/stock/programs/", "tests/foreign/programs/")
"""Programs that are not ours."""


def classes() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each class at the top of a module, but of those that are private."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            file = str(path.relative_to(ROOT))
            if not file.startswith(OTHERS):
                yield from (
                    (file, node.name) for node in nodes(path)[0].body if isinstance(node, ast.ClassDef)
                )


def test_a_class_of_a_test_or_a_benchmark_has_a_name_of_its_own():
    """Two classes of one name are looked up twice, and one that has the name of a class of ours is taken for it."""
    files = defaultdict(set)
    for file, name in classes():
        files[name].add(file)
    shared = {
        name: sorted(found)
        for name, found in files.items()
        if len(found) > 1 and not name.startswith("_")
        if any(not file.startswith("orchestrator/") for file in found)
    }
    assert shared == {}


def given(path: Path) -> Iterator[str]:
    """Yield the names of a module's classes, functions and arguments."""
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def old_words(name: str) -> set[str]:
    """Return the words that stand for a lab in a name; that of a test is a sentence."""
    if name.startswith("test_"):
        return set()
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")) & LABS


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_what_a_test_or_a_benchmark_stands_on_is_a_lab(folder):
    """CONTRIBUTING.md has the words; `Lab`, `Bench`, `Stage`, `Scene` and `Box` were one thing."""
    found = {
        file: sorted(bad)
        for path in (ROOT / folder).rglob("*.py")
        for file in (str(path.relative_to(ROOT)),)
        if file not in OF_SELFTEST and not file.startswith(OTHERS)
        if (bad := {name for name in given(path) if old_words(name)})
    }
    assert found == {}


@pytest.mark.parametrize(
    ("name", "bad"),
    [("FleetStage", {"stage"}), ("bench", {"bench"}), ("test_each_stage", set()), ("ProcessLab", set())],
)
def test_another_word_for_a_lab_is_found(name, bad):
    """Whole words, in snake and in camel case."""
    assert old_words(name) == bad
