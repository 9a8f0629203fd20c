"""tpuctl support: one archive of what a maintainer needs, without secrets, on this computer only."""

import time
from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.app.support import Collection, collect, write_archive
from orchestrator.cli.console import print_json, say
from orchestrator.cli.options import (
    confirm,
    deployment_options,
    must_answer,
    name_argument,
    output_option,
    yes_option,
)


@click.command("support")
@deployment_options
@yes_option
@output_option("tpuctl-support-DATE.zip")
@name_argument
def command(choice: Choice, yes: bool, output: Path | None, name: str | None) -> None:
    """
    Write an archive for a bug report: versions, settings, doctor, record, changes, events, end of the logs.

    Its files are listed before it is written, to this computer only; nothing is sent anywhere. Secrets are
    masked; names of projects, buckets, machines and people are not, so look before you give it away. What
    cannot be read is left out and named. NAME is a deployment that this computer has brought up.
    """
    must_answer(yes=yes)
    path = output or Path(f"tpuctl-support-{time.strftime('%Y%m%d-%H%M%S')}.zip")
    found = collect(choice, name)
    for line in _listed(found):
        say(line)
    confirm(f"write {path}?", yes=yes)
    write_archive(path, found)
    if choice.as_json:
        files = [{"name": p.name, "bytes": len(p.text.encode()), "what": p.what} for p in found.parts]
        print_json("support", {"file": str(path), "files": files, "unread": found.unread})
    else:
        say(f"{path}: nothing was sent; look into it before you give it away", style="green")


def _listed(found: Collection) -> list[str]:
    width = max(len(part.name) for part in found.parts)
    lines = [f"{part.name:<{width}}  {len(part.text.encode()):>7} B  {part.what}" for part in found.parts]
    return lines + [f"not read: {name}: {why}" for name, why in found.unread.items()]
