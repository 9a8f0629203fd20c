"""Show the content of an archive for a bug report."""

from pathlib import Path

from orchestrator.app.support import Collection
from orchestrator.cli.console import print_json, say, talk


def announce(found: Collection) -> None:
    """List the archive's files before it is written, and what could not be read."""
    width = max(len(file.name) for file in found.files)
    for file in found.files:
        talk(f"{file.name:<{width}}  {len(file.text.encode()):>7} B  {file.what}")
    for name, message in found.unread.items():
        say(f"not read: {name}: {message}")


def show(path: Path, found: Collection, *, as_json: bool) -> None:
    """Print where the archive is."""
    if as_json:
        files = [{"name": p.name, "bytes": len(p.text.encode()), "what": p.what} for p in found.files]
        print_json("support", {"file": str(path), "files": files, "unread": found.unread})
    else:
        say(f"{path}: nothing was sent; look into it before you give it away", style="green")
