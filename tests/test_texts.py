"""Texts for people are made once, in one style, and no code reads them back."""

import ast
from pathlib import Path

import pytest

import orchestrator

PACKAGE = Path(orchestrator.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SENTENCES = {
    "why",
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
    "advice/preflight/exposure.py": 2,
    "advice/preflight/findings.py": 1,
    "advice/preflight/installs.py": 1,
    "advice/preflight/program.py": 2,
    # An answer of the metadata server, the same.
    "agent/machine/expire.py": 2,
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
    name = getattr(node, "attr", None) or (getattr(node, "id", "") if isinstance(node, ast.Name) else "")
    own = {"why", "reason", "message", "hint"} if isinstance(node, ast.Name) else SENTENCES
    return name in own


def is_words(node):
    """Return whether an expression is a text of several words, or one that is put together."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and " " in str(node.value).strip()
    )


def read_back(text):
    """Return the lines on which a module takes a text for people apart, or compares one."""
    lines = []
    for node in ast.walk(ast.parse(text)):
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
        ('own = change.why.removeprefix(f"{change.name} is ")', True),
        ('reason = outcome.reason.replace("the job", "the setup command")', True),
        ('if "quota" in str(error): pass', True),
        ('if row.label.startswith("worker "): pass', True),
        ('if failure.error.message == "it is gone": pass', True),
        ('re.sub(r" in [0-9]+ s", "", wait.text)', True),
        ("words = finding.text.split()", False),
        ('text = f"{change.name}: {change.why}"', False),
        ('if error.code == "TPU-404": pass', False),
    ],
)  # fmt: skip
def test_a_sentence_that_is_read_back_is_found(text, found):
    """Also by way of a regular expression, and of the exception itself."""
    assert bool(read_back(text)) is found


def test_no_sentence_is_read_back():
    """Text never steers anything: values carry the parts, and sentences are made once, from them."""
    found = {path.relative_to(PACKAGE).as_posix(): read_back(path.read_text()) for path in MODULES}
    assert {file: len(lines) for file, lines in found.items() if lines} == READS_TEXT
