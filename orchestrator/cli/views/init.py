"""Show which files were written, and the result of a conversion."""

import shlex
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from orchestrator.cli.console import columns, print_json, put, say, talk

if TYPE_CHECKING:
    from orchestrator.app.init import FirstFiles
    from orchestrator.config.others.conversion import Conversion, Converted

_TITLES = {"mapped": "Mapped", "left out": "Left out", "decide": "To decide"}


def show_converted(file: Path, other: Path, found: "Conversion", *, as_json: bool) -> None:
    """Print three lists: settings that were converted, those that were not and why, and open decisions."""
    if as_json:
        rows = [row.as_dict() for row in found.rows]
        body = {"file": str(file), "recipe": None, "from": str(other), "tool": found.tool, "rows": rows}
        print_json("init", body)
        return
    _show_rows(found)
    say(f"{file} is written, from a file of {found.tool}. Next: decide what is listed, then `tpuctl check`")


def _show_rows(found: "Conversion") -> None:
    for verdict, title in _TITLES.items():
        rows = [row for row in found.rows if row.verdict == verdict]
        if not rows:
            continue
        put(f"{title}:")
        heads = [_about(row) for row in rows]
        width = min(max(map(len, heads)), 44)
        for row, head in zip(rows, heads, strict=True):
            line(head, _becomes(row), width)


def _about(row: "Converted") -> str:
    return row.ours if row.verdict == "decide" else row.theirs or "(added)"


def _becomes(row: "Converted") -> str:
    if row.verdict != "mapped":
        return row.message
    return f"{row.ours}  ({row.message})" if row.message else row.ours


def line(head: str, text: str, width: int) -> None:
    """Print a label, and beside it a text of several lines."""
    room = max(30, (columns() or 110) - width - 4)
    lines = wrap(text, room, break_on_hyphens=False) or [""]
    if len(head) > width:
        put(f"  {head}")
        head = ""
    for part in lines:
        put(f"  {head:<{width}}  {part}".rstrip())
        head = ""


def show_written(written: "FirstFiles", recipe: str | None, *, as_json: bool) -> None:
    """Print which files were written, and the next command from the user's folder."""
    file = written.file
    if as_json:
        print_json("init", {"file": str(file), "recipe": recipe})
        return
    folder = file.parent
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    # Without a recipe the folder is the user's own, so its other files are not listed.
    listed = f"Wrote {file}, and {written.schema.name} beside it, for editors"
    if recipe:
        listed = f"Wrote {len(names)} files to {folder}: {', '.join(names)}"
    say(listed, style="green")
    for text in () if recipe else _guesses(written):
        talk(text)
    # `tpuctl plan` finds the file only from its folder.
    go = "" if folder.absolute() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    talk(f"  next:  {go}tpuctl {'fleet up' if written.spec.fleet else 'plan'}")


def _guesses(written: "FirstFiles") -> list[str]:
    """Return what a first deployment file assumes, for the user to correct."""
    job, tpu = written.spec.job, written.spec.tpu
    runs = "train.py is only an example, since no program was found" if written.runs_example else job.command
    lines = [f"  TPU:   {tpu.type} in {', '.join(tpu.zones)} (a guess)", f"  runs:  {runs}"]
    if written.setup_to_check:
        lines.append(
            f"  setup: not set: decide the commented question at job.setup ({written.setup_to_check})"
        )
    return [*lines, f"  setup: {job.setup}"] if job.setup else lines
