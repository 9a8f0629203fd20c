"""Show the content of an archive for a bug report."""

from orchestrator.app.support import Collection
from orchestrator.cli.console import say, talk


def announce(found: Collection) -> None:
    """List the archive's files before it is written, and what could not be read."""
    width = max(len(part.name) for part in found.parts)
    for part in found.parts:
        talk(f"{part.name:<{width}}  {len(part.text.encode()):>7} B  {part.what}")
    for name, why in found.unread.items():
        say(f"not read: {name}: {why}")
