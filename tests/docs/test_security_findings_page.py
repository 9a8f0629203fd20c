"""docs/security-findings.md: each finding has a row, each row a witness or a sentence of what is left."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = dict(
    re.findall(r"^\| ([A-Z]\d+)\. (.*)$", (ROOT / "docs/security-findings.md").read_text(), re.MULTILINE)
)
NOT_PROMISED = (ROOT / "docs/security.md").read_text().partition("## What is not promised")[2]
REVIEWED = [
    "C1",
    *(f"H{n}" for n in range(1, 6)),
    *(f"M{n}" for n in range(1, 9)),
    *(f"L{n}" for n in range(1, 9)),
]


def test_every_finding_has_its_row():
    """Those of the review in their order, then those of the later looks."""
    names = list(ROWS)
    assert names[: len(REVIEWED)] == REVIEWED
    for look in "AB":
        found = [int(name[1:]) for name in names[len(REVIEWED) :] if name[0] == look]
        assert found == list(range(1, len(found) + 1))


def test_every_witness_is_there():
    """A test that was renamed shows nothing any more."""
    for finding, row in ROWS.items():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named or "left: " in row, finding
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text())
            found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in found, f"{finding}: {path}: {name}"


def test_each_quoted_limit_is_in_the_list_of_what_is_not_promised():
    """Each quotation is in the list of what is not promised."""
    plain = " ".join(NOT_PROMISED.split())
    for finding, row in ROWS.items():
        for sentence in re.findall(r'"([^"]+)"', row.partition("left: ")[2]):
            assert sentence in plain, f"{finding}: {sentence}"
