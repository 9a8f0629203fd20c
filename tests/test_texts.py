"""Texts for people are made once, in one style, and no code reads them back."""

import ast
import re
from pathlib import Path

import pytest

import orchestrator
from tests.kit.source import nodes, tree

pytestmark = pytest.mark.usefixtures("code_read_once")
PACKAGE = Path(orchestrator.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SENTENCES = {
    "reason",
    "message",
    "hint",
    "changed",
    "next_step",
    "text",
    "label",
    "title",
    "headline",
    "note",
}
"""Attributes that hold what people read; `error` and `exception` as text are the same."""
EDITS = {
    "removeprefix", "removesuffix", "replace", "split", "rsplit", "partition", "rpartition", "startswith",
    "endswith", "find", "rfind", "index",
}  # fmt: skip
MATCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
READS_TEXT = {
    # A line of the user's code, whose attribute is called text.
    "advice/check/exposure.py": 2,
    "advice/check/findings.py": 1,
    "advice/check/installs.py": 1,
    "advice/check/program.py": 2,
    # An answer of the metadata server, the same.
    "agent/machine/self_delete.py": 2,
    "engine/publish/receivers.py": 1,  # mentions are broken in whatever is sent
    "engine/records/record_format.py": 1,  # the stored form of a refusal: code and text in one
    # Google's texts, for hints; the fields of its errors do not have it.
    "google/hints.py": 2,
    "google/refusal.py": 1,
}
"""Files that take a text apart, each with its reason and the number of places."""


def is_sentence(node):
    """Return whether an expression is a text for people, by the name of its attribute."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        return is_sentence(node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"str", "repr"}:
        return ast.unparse(node.args[0]) in {"error", "exception"} or is_sentence(node.args[0])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value in SENTENCES
    name = getattr(node, "attr", None) or (getattr(node, "id", "") if isinstance(node, ast.Name) else "")
    own = {"reason", "message", "hint"} if isinstance(node, ast.Name) else SENTENCES
    return name in own


def is_words(node):
    """Return whether an expression is a text of several words, or one that is put together."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and " " in str(node.value).strip()
    )


def read_back(parts):
    """Return the lines on which a module, given as its nodes, takes a text for people apart, or compares one."""
    lines = []
    for node in parts:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            edits = node.func.attr in EDITS and node.args and is_sentence(node.func.value)
            found = edits or (node.func.attr in MATCHES and any(map(is_sentence, node.args)))
        elif isinstance(node, ast.Compare):
            first, second = node.left, node.comparators[0]
            inside = isinstance(node.ops[0], ast.In | ast.NotIn) and is_sentence(second)
            same = (is_sentence(first) and is_words(second)) or (is_sentence(second) and is_words(first))
            found = (inside and isinstance(first, ast.Constant | ast.JoinedStr)) or same
        else:
            continue
        lines += [node.lineno] if found else []
    return lines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('own = change.message.removeprefix(f"{change.name} is ")', True),
        ('message = outcome.message.replace("the job", "the setup command")', True),
        ('if "quota" in str(error): pass', True),
        ('if row.label.startswith("worker "): pass', True),
        ('if failure.error.message == "it is gone": pass', True),
        ('re.sub(r" in [0-9]+ s", "", wait.text)', True),
        ('if "pod rate" in row["note"]: pass', True),
        ("words = finding.text.split()", False),
        ('text = f"{change.name}: {change.message}"', False),
        ('if error.code == "TPU-404": pass', False),
    ],
)  # fmt: skip
def test_a_sentence_that_is_read_back_is_found(text, found):
    """Also by way of a regular expression, and of the exception itself."""
    assert bool(read_back(ast.walk(ast.parse(text)))) is found


def test_no_sentence_is_read_back():
    """Text never steers anything: values carry the parts, and sentences are made once, from them."""
    found = {path.relative_to(PACKAGE).as_posix(): read_back(nodes(path)) for path in MODULES}
    assert {file: len(lines) for file, lines in found.items() if lines} == READS_TEXT


ADVICE = {"hint", "next_step", "usual_step"}
"""Arguments, fields and variables that say what to do next."""
NOT_AT_HEAD = re.compile(r"[A-Z][a-z]|please\b")
"""A capital letter of ordinary words; names that are written so may begin a hint."""


def words_of(node, constants):
    """Yield the texts of an expression with `{}` for what is put in: constants by their names, either branch."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (*words_of(node.body, constants), *words_of(node.orelse, constants))
    elif isinstance(node, ast.BoolOp):
        yield from (text for one in node.values for text in words_of(one, constants))
    elif isinstance(node, ast.Name | ast.Attribute):
        yield constants.get(node.id if isinstance(node, ast.Name) else node.attr, "")


def takes_advice(path):
    """Return the names of functions and value classes whose parameter is a hint, with its position."""
    found = {}
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in node.args.args if one.arg != "self"]
        elif isinstance(node, ast.ClassDef):
            names = [one.target.id for one in node.body if isinstance(one, ast.AnnAssign)]
        else:
            continue
        given = [index for index, name in enumerate(names) if name in ADVICE]
        found |= {node.name: given[0]} if given else {}
    return found


def advice_in(path, constants, takers):
    """Yield (line, text) for each hint: arguments, variables, and what google/hints.py returns."""
    for node in nodes(path):
        values = []
        if isinstance(node, ast.keyword) and node.arg in ADVICE:
            values = [node.value]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            values = node.args[takers[name] : takers[name] + 1] if name in takers else []
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values = [node.value] if node.targets[0].id in ADVICE else []
        elif isinstance(node, ast.Return) and "hints" in constants:
            values = [node.value]
        yield from ((node.value.lineno if isinstance(node, ast.keyword) else node.lineno, text)
                    for one in values for text in words_of(one, constants) if text)  # fmt: skip


def off_style(text):
    """Return whether a hint begins like a sentence, ends like one, or is more than one."""
    ends = text.endswith(".") and not text.endswith(("..", " ."))
    return (
        bool(NOT_AT_HEAD.match(text)) or ends or re.search(r"[a-z)]\. +([A-Z][a-z]|\{\})", text) is not None
    )


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("correct the line, then run: tpuctl plan", False),
        ("TPU-300 in docs/errors.md", False),
        ("`tpuctl status` shows it", False),
        ("copy it: tpuctl cp :run.log .", False),
        ("Correct the line", True),
        ("correct the line.", True),
        ("see: tpuctl status. Then wait", True),
        ("please correct the line", True),
    ],
)
def test_a_hint_in_another_style_is_found(text, off):
    """It follows "next: ", so it is no sentence of its own."""
    assert off_style(text) is off


def test_hints_have_one_style():
    """They begin with a small letter or a command, have no full stop, and join their parts with a semicolon."""
    constants = {
        node.targets[0].id: "".join(words_of(node.value, {}))
        for path in MODULES
        for node in tree(path).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    own = {path: takes_advice(path) for path in MODULES}
    everywhere = {name: n for takers in own.values() for name, n in takers.items() if name[0] != "_"}
    found, count = {}, 0
    for path in MODULES:
        known = constants | ({"hints": ""} if path.name == "hints.py" else {})
        for line, text in advice_in(path, known, everywhere | own[path]):
            count += 1
            if off_style(text):
                found[f"{path.relative_to(PACKAGE)}:{line}"] = text
    assert count > 450
    assert found == {}
