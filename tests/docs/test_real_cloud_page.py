"""docs/real-cloud.md: each finding has its row, and who is named as a witness is there."""

import ast
import re
from pathlib import Path

from tests.simulation.google_failures import GOOGLE_FAILURES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "real-cloud.md").read_text()
ROWS = {int(number): row for number, row in re.findall(r"^\| (\d+)\. (.*)$", PAGE, re.MULTILINE)}
FINDINGS = 32
"""What the audits of 2026-11 found, from blockers to minor things."""


def test_every_finding_has_its_row():
    """In their order."""
    assert list(ROWS) == list(range(1, FINDINGS + 1))


def test_every_witness_is_there():
    """A test that was renamed shows nothing any more."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in found, f"{path}: {name}"


def test_what_can_be_switched_off_has_its_scissors():
    """As many scissors in a row as there are switches of that finding."""
    switches = [int(re.match(r"U(\d+)", name)[1]) for name in GOOGLE_FAILURES]
    switched_off = {number: row.count("✂") for number, row in ROWS.items() if "✂" in row}
    assert switched_off.keys() == set(switches) | {16}
