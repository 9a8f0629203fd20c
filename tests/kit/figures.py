"""
Figures of the reliability runs: each run writes its own part of docs/reliability.md.

A pytest run writes only where TPUCTL_FIGURES names the document, as .ci/reliability does; the rest of the
document is left as it is.
"""

import os
import re
import subprocess
from pathlib import Path

HEAD = "# Reliability, measured\n\nEach part below is written by the run that it reports on.\n"


def commit() -> str:
    """Return the commit of the checkout, or that nobody knows."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout.strip() or "an unknown commit"


def write(path: Path, part: str, title: str, about: str, figures: dict[str, object]) -> None:
    """Put a table of *figures* into the part of the document that this run owns."""
    start, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    rows = "\n".join(f"| {name} | {value} |" for name, value in figures.items())
    table = f"| figure | value |\n| --- | --- |\n{rows}"
    ours = f"{start}\n## {title}\n\n{about} On commit {commit()}.\n\n{table}\n{end}"
    text = path.read_text() if path.exists() else HEAD
    old = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    path.write_text(old.sub(lambda _: ours, text) if old.search(text) else f"{text.rstrip()}\n\n{ours}\n")


def record_figures(part: str, title: str, about: str, figures: dict[str, object]) -> None:
    """Print *figures*, and write them where TPUCTL_FIGURES names a document."""
    print(f"\n{title}", *(f"  {name}: {value}" for name, value in figures.items()), sep="\n")
    if document := os.environ.get("TPUCTL_FIGURES"):
        write(Path(document), part, title, about, figures)
