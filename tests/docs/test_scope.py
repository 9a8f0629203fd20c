"""docs/scope.md: each row names what enforces it: an error, a decision, or a promise with its tests."""

import re

import pytest

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


REFUSALS = {
    # What another page or a message refuses, and the row that says why.
    ("docs/data.md", "creates, formats and deletes no disk"): "creating, formatting or deleting data disks",
    ("docs/fleet.md", "tpuctl has no tuner of its own"): "a scheduler or a tuner of our own",
    ("docs/containers.md", "there is no setting for their passwords"): "storing secrets, also passwords of",
    ("docs/secrets.md", "tpuctl does not grant it"): "creating or granting accounts and roles",
    (
        "docs/errors.md",
        "tpuctl does not overwrite what it has not made",
    ): "overwriting files that it has not made",
    (
        "docs/errors.md",
        "tpuctl never uses what it does not know",
    ): "deleting what it did not record and label",
    (
        "docs/decisions/0016-ray-is-a-command-of-the-job.md",
        "not a setting",
    ): "a setting for Ray or another engine",
    ("orchestrator/config/rules/names_and_zones.py", "served by Compute Engine and GKE only"): "TPU7x",
    (
        "orchestrator/config/rules/fleet.py",
        "is not for fleets",
    ): "a race, disks, a deadline or sidecars in a fleet",
}


@pytest.mark.parametrize(("place", "row"), REFUSALS.items(), ids=[words for _, words in REFUSALS])
def test_what_another_page_refuses_has_its_row(place, row):
    """Whoever meets a limit finds the reason for it on one page."""
    page, words = place
    assert words in " ".join((ROOT / page).read_text().split())
    assert any(one.startswith(row) for one in ROWS)
