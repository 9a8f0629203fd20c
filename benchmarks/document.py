"""The page of measured performance: each benchmark writes its own part and leaves the others as they are."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
HEAD = "# Performance, measured\n"


def put(part: str, text: str, page: Path = PAGE) -> None:
    """Put *text* between the marks of a part; a part that is not there yet is added at the end."""
    start, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    ours = f"{start}\n{text.strip()}\n{end}"
    old = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    body = page.read_text() if page.exists() else HEAD
    page.write_text(old.sub(lambda _: ours, body) if old.search(body) else f"{body.rstrip()}\n\n{ours}\n")
