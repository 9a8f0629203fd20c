"""docs/glossary.md explains the words that the other pages use."""

import re

import pytest

from orchestrator.domain.plan import Outcome, Verb
from tests.cli.cli_kit import ROOT
from tests.docs.pages import PAGES, text_of

ROWS = re.findall(r"^\| ([a-z][\w ,]*) \| (.+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
WORDS = [word for word, _ in ROWS if word != "word"]
MUST = {
    "agent",
    "bundle",
    "checkpoint",
    "heartbeat",
    "incarnation",
    "lease",
    "manifest",
    "preemption",
    "slice",
    "uncommitted",
    "watcher",
}


def test_the_glossary_has_all_verbs_of_a_change_and_all_outcomes():
    """A new member without a word here would be one that no page explains."""
    text = dict(ROWS)
    assert [verb.word for verb in Verb if verb.word not in text["change"]] == []
    assert [outcome.value for outcome in Outcome if outcome.value not in text["outcome"]] == []


def test_the_words_are_in_order_and_each_italic_one_has_a_row():
    """Readers look a word up by its first letter."""
    assert sorted(WORDS) == WORDS
    italics = {word for _, text in ROWS for word in re.findall(r"\*(\w[\w ]*)\*", text)}
    singular = {word if word in WORDS else word.removesuffix("s") for word in italics}
    assert singular <= set(WORDS)
    assert set(WORDS) >= MUST


def test_every_word_is_used_somewhere_else():
    """On a page, or in what commands print; a row that nothing needs goes."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "glossary.md"]
    pages += (ROOT / "orchestrator/cli/views").glob("*.py")
    text = " ".join(path.read_text().lower() for path in [*pages, ROOT / "README.md"])
    assert [word for word in WORDS if word.split(",")[0] not in text] == []


INSTEAD = {
    r"blows?": "failure",
    r"dear": "on demand",
    r"heard of": "heartbeat",
    r"mute": "never reported",
    r"roads?": "route",
    r"seal(s|ed)?": "checksum",
    r"sightings?": "observation",
    r"told": "reported, notified",
}
"""What these pages once said, and the word of the glossary or of the field for it."""
MADE = {"check", "commands", "doctor", "explain", "performance", "reliability"}
"""Pages that are made by a program, which has the texts."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in MADE], ids=str)
def test_a_page_has_one_word_for_one_thing(page):
    """Code, and tables that a run has written, may say it otherwise."""
    prose = re.sub(r"```.*?```|`[^`]*`|<!-- (\w+): begin.*?<!-- \1: end", "", text_of(page), flags=re.DOTALL)
    found = {old: new for old, new in INSTEAD.items() if re.search(rf"\b{old}\b", prose, re.IGNORECASE)}
    assert found == {}
