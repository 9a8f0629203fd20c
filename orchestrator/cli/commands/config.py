"""tpuctl config: each setting as it is used, and where it comes from."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.cli.console import print_json
from orchestrator.cli.options import Command, json_option, settings_options


@click.command("config", cls=Command)
@click.option("--all", "everything", is_flag=True, help="Show defaults too.")
@json_option
@settings_options
def command(file: Path | None, settings: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """
    Show each setting with its origin: a flag, a TPUCTL_ variable, a line of the file, or the default.

    A flag wins over a variable, a variable over the file. Secrets are shown by their names only.
    """
    from orchestrator.config.layers import overrides_of
    from orchestrator.config.load import find
    from orchestrator.config.origins import DEFAULT, origins_of
    from orchestrator.domain.clean_text import clean

    path = file or find(Path.cwd())
    found = [o for o in origins_of(path, overrides_of(settings)) if everything or o.origin != DEFAULT]
    if as_json:
        print_json("config", {"file": str(path), "settings": [asdict(one) for one in found]})
        return
    width = max((len(one.key) for one in found), default=0)
    for one in found:
        text = one.value if isinstance(one.value, str) else json.dumps(one.value)
        # Settings may be somebody else's, who hands a project over: nothing of them steers the terminal.
        click.echo(clean(f"{one.key:<{width}}  {text}  ({one.origin})"))
    if not everything:
        click.echo("everything else has its default: tpuctl config --all", err=True)
