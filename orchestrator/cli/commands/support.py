"""tpuctl support: one archive of what a maintainer needs, without secrets, on this computer only."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import (
    confirm,
    deployment_options,
    must_answer,
    name_argument,
    output_option,
    yes_option,
)

if TYPE_CHECKING:
    from orchestrator.app.support import Collection


@click.command("support")
@deployment_options
@yes_option
@output_option("tpuctl-support-DATE.zip")
@name_argument
def command(
    choice: Choice, yes: bool, output: Path | None,
    name: str | None,
) -> None:  # fmt: skip
    """
    Write an archive for a bug report: versions, settings, doctor, record, changes, events, end of the logs.

    Its files are listed before it is written, to this computer only; nothing is sent anywhere. Secrets are
    masked; names of projects, buckets, machines and people are not, so look before you give it away. What
    cannot be read is left out and named. NAME is a deployment that this computer has brought up.
    """
    from orchestrator.app.support import collect
    from orchestrator.cli.console import print_json, say

    must_answer(yes=yes)
    path = output or Path(f"tpuctl-support-{time.strftime('%Y%m%d-%H%M%S')}.zip")
    found = collect(choice, name)
    for line in _listed(found):
        say(line)
    confirm(f"write {path}?", yes=yes)
    _write(path, found)
    if choice.as_json:
        files = [{"name": p.name, "bytes": len(p.text.encode()), "what": p.what} for p in found.parts]
        print_json("support", {"file": str(path), "files": files, "unread": found.unread})
    else:
        say(f"{path}: nothing was sent; look into it before you give it away", style="green")


def _listed(found: "Collection") -> list[str]:
    width = max(len(part.name) for part in found.parts)
    lines = [f"{part.name:<{width}}  {len(part.text.encode()):>7} B  {part.what}" for part in found.parts]
    return lines + [f"not read: {name}: {why}" for name, why in found.unread.items()]


def _write(path: Path, found: "Collection") -> None:
    """Write the archive, readable by this user only, whole or not at all."""
    import json
    import zipfile
    from io import BytesIO

    from orchestrator.engine.atomic_files import write_atomically

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in found.parts:
            archive.writestr(part.name, part.text)
        archive.writestr("not-read.json", json.dumps(found.unread, indent=1))
    write_atomically(path, buffer.getvalue())
