"""What the parts of the page have in common: tables, paragraphs of one width, and goals that are kept or missed."""

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 110


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def words(*sentences: str, item: bool = False) -> str:
    """Return sentences as a paragraph, or as an item of a list."""
    first, later = ("- ", "  ") if item else ("", "")
    text = " ".join(" ".join(sentences).split())
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def goal(what: str, found: float, limit: float, beside: str, message: str) -> str:
    """Say as an item of a list whether a goal is kept, and by how much and why it is missed."""
    end = "kept." if found <= limit else f"missed by {found / limit:.1f}x. {message}"
    return words(f"{what}: {f'{found:.2f} {beside}'.strip()}, the goal is {limit:g}: {end}", item=True)
