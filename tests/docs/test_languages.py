"""The landing page and the tutorial in Korean and Japanese keep step with the English ones."""

import re

import pytest

from tests.docs.pages import LINK, blocks, text_of

TWINS = {
    f"docs/{language}/{page}": english
    for language in ("ko", "ja")
    for page, english in (("README.md", "README.md"), ("tutorial.md", "docs/tutorial.md"))
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LETTERS = {"ko": "[\uac00-\ud7a3]", "ja": "[\u3041-\u30ff]"}


def code(page):
    """Return the blocks of a page with their kinds; comments may be in any language."""
    return [(kind, re.sub(r"\s*#.*", "", text)) for kind, text in BLOCK.findall(text_of(page))]


def outline(page):
    """Return the levels of the headings, and the number of each where it has one."""
    text = BLOCK.sub("", text_of(page))
    return [(len(level), number) for level, number in re.findall(r"^(#+) (\d+\.)?", text, re.MULTILINE)]


def commands_named(page):
    """Return the options, variables and commands of tpuctl that the text names."""
    prose = BLOCK.sub("", text_of(page))
    return sorted(re.findall(r"`(--[a-z][\w-]+(?: local)?|TPUCTL_\w+=\w+|tpuctl [\w -]+|Ctrl-C)`", prose))


def targets(page):
    """Return the files that a page leads to, but for its own twins in the other languages."""
    names = (
        link.rsplit("/", 1)[-1]
        for link in LINK.findall(text_of(page))
        if "ko/" not in link and "ja/" not in link
    )
    return sorted(names)


@pytest.mark.parametrize(("page", "english"), TWINS.items(), ids=TWINS)
def test_a_translated_page_keeps_step(page, english):
    """The same commands and files to copy, the same chapters, options and links."""
    assert code(page) == code(english)
    assert outline(page) == outline(english)
    assert commands_named(page) == commands_named(english)
    assert targets(page) == targets(english)
    assert [block.message for block in blocks(page)] == [block.message for block in blocks(english)]


@pytest.mark.parametrize("page", TWINS)
def test_a_translated_page_is_in_its_language(page):
    """Most paragraphs have letters of it: none is a copy of the English one."""
    letters = LETTERS[page.split("/")[1]]
    parts = [part for part in BLOCK.sub("", text_of(page)).split("\n\n") if len(part.strip()) > 20]
    assert [part for part in parts if not re.search(letters, part) and "<!--" not in part] == []


@pytest.mark.parametrize("page", [*TWINS, *dict.fromkeys(TWINS.values())])
def test_a_page_says_what_it_needs_before_its_first_command(page):
    """People with Windows or a Mac learn there what else they have to install."""
    before = text_of(page).split("\n```sh\n")[0]
    missing = [word for word in ("Linux", "Windows", "WSL 2", "Mac") if word not in before]
    assert missing == []


@pytest.mark.parametrize("page", [*TWINS, *dict.fromkeys(TWINS.values())])
def test_who_watches_when_the_computer_is_closed_is_read_before_the_first_up(page):
    """The VM gets the rights for it when it is made, so after `up` it would be too late."""
    (sentence,) = [text for text in re.split(r"\n\n", text_of(page)) if "`watch.on_vm: true`" in text]
    assert "`up`" in sentence
    assert "watch --on-vm`" in sentence
    if page.endswith("tutorial.md"):
        assert text_of(page).index(sentence) < text_of(page).index("\ntpuctl up\n")
