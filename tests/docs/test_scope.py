"""docs/scope.md: each row names what enforces it: an error, a decision, or a promise with its tests."""

import re

from tests.cli.cli_kit import ROOT

PAGE = ROOT / "docs/scope.md"
ROWS = re.findall(r"^\| ((?!not in scope|---).*) \|$", PAGE.read_text(), re.MULTILINE)
CODES = re.findall(r"^### (TPU-\d+)$", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
PROMISES = re.findall(r"^\| (SEC\d+):", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
DECISIONS = {
    f"decisions/{path.name}": f"decision {int(path.name[:4])}"
    for path in (ROOT / "docs/decisions").glob("0*.md")
}


def exists(text, link):
    """Return whether a link leads to a code's part of the page, a decision, or a row of promises."""
    return (
        (text in CODES and link == f"errors.md#{text.lower()}")
        or DECISIONS.get(link) == text
        or (text in PROMISES and link == "security.md")
    )


def test_each_refusal_leads_to_what_enforces_it():
    """A limit that nothing sees to is a wish."""
    assert len(ROWS) >= 10
    for row in ROWS:
        links = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", row.split(" | ")[3])
        assert links, row
        assert [link for link in links if not exists(*link)] == [], row
