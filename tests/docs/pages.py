"""What the pages of the documentation contain: shell blocks, commands in the text, links."""

import re
import shlex
from dataclasses import dataclass

import click

from orchestrator.cli.main import cli
from tests.cli.cli_kit import ROOT

PAGES = sorted(
    path.relative_to(ROOT)
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    )
)
BLOCK = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<message>[^>]+?) -->\n)?^[ ]*```sh\n(?P<text>.*?)^[ ]*```",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`(tpuctl [^`\n]+)`")
LINK = re.compile(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)")


@dataclass(frozen=True)
class Block:
    """One shell block; *message* says why it is not run by a test."""

    page: str
    text: str
    message: str


def text_of(page):
    """Return a page's text."""
    return (ROOT / page).read_text()


def blocks(page):
    """Return the shell blocks of a page, in order."""
    return [Block(str(page), m["text"], m["message"] or "") for m in BLOCK.finditer(text_of(page))]


def commands(page):
    """Return every tpuctl command that a page names, in blocks and in the text."""
    if str(page) == "docs/commands.md":
        return []  # It is made from the commands.
    typed = [line.strip() for block in blocks(page) for line in block.text.splitlines()]
    typed = [re.sub(r"\s+#.*", "", line) for line in typed if line.startswith("tpuctl ")]
    return sorted({*typed, *INLINE.findall(text_of(page))})


def refused(line):
    """Return why our command line does not take *line*, or nothing."""
    line = re.sub(r"\s[|>&].*", "", line.replace("...", "").replace("[", "").replace("]", ""))
    words = shlex.split(line)[1:]
    command, path = cli, ["tpuctl"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"there is no {' '.join([*path, words[0]])}"
        command, path = found, [*path, words.pop(0)]
    context = click.Context(command, info_name=" ".join(path), help_option_names=["-h", "--help"])
    try:
        _, more, _ = command.make_parser(context).parse_args(words)
    except click.ClickException as error:
        return error.format_message()
    return f"unexpected {' '.join(more)}" if more and not isinstance(command, click.Group) else ""
