"""docs/words.md explains the words that the other pages use."""

import re

from tests.cli.cli_kit import ROOT

ROWS = re.findall(r"^\| ([a-z][\w ,]*) \| (.+) \|$", (ROOT / "docs/words.md").read_text(), re.MULTILINE)
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
}


def test_the_words_are_in_order_and_each_italic_one_has_a_row():
    """Readers look a word up by its first letter."""
    assert sorted(WORDS) == WORDS
    italics = {word for _, text in ROWS for word in re.findall(r"\*(\w[\w ]*)\*", text)}
    singular = {word if word in WORDS else word.removesuffix("s") for word in italics}
    assert singular <= set(WORDS)
    assert set(WORDS) >= MUST


def test_every_word_is_used_somewhere_else():
    """On a page, or in what commands print; a row that nothing needs goes."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "words.md"]
    pages += (ROOT / "orchestrator/cli/views").glob("*.py")
    text = " ".join(path.read_text().lower() for path in [*pages, ROOT / "README.md"])
    assert [word for word in WORDS if word.split(",")[0] not in text] == []
