"""Show what was copied between this computer and machines."""

from collections.abc import Sequence

from orchestrator.app.machines.cp import Copied
from orchestrator.cli.console import print_json, put, say


def show(copies: Sequence[Copied], *, as_json: bool) -> None:
    """Print a line, or with *as_json* a document, for each machine."""
    for one in copies:
        if as_json:
            _print(one)
        elif one.error:
            put(f"{one.machine}: {one.error.message} ({one.error.code})", err=True)
        else:
            _say(one)


def _say(one: Copied) -> None:
    what = one.what
    files = "" if what.files == 1 else f"{what.files:,} files, "
    say(f"{one.source} -> {one.target} ({one.machine}, {files}{what.size:,} bytes)")
    for text, names in (
        ("changed while it was copied, so a copy may be half old and half new", what.changed),
        ("not copied: devices, sockets, and links that lead out of the folder", what.skipped),
    ):
        if names:
            say(f"  {text}: {', '.join(names)}", style="yellow")


def _print(one: Copied) -> None:
    what = one.what
    body = {"machine": one.machine, "source": one.source, "target": one.target, "bytes": what.size}
    more = {"files_count": what.files, "changed": what.changed, "skipped": what.skipped}
    print_json("cp", body | more | ({"error": one.error.as_dict()} if one.error else {}))
