"""Show each setting with its origin."""

import json
from dataclasses import asdict

import click

from orchestrator.app.config import ReadSettings
from orchestrator.cli.console import print_json, talk
from orchestrator.domain.text.clean_text import clean


def show(found: ReadSettings, *, as_json: bool) -> None:
    """Print one line for each setting."""
    if as_json:
        print_json("config", {"file": str(found.file), "settings": [asdict(one) for one in found.values]})
        return
    width = max((len(one.setting) for one in found.values), default=0)
    for one in found.values:
        text = one.value if isinstance(one.value, str) else json.dumps(one.value)
        # Settings may come from another person's project, so control characters are removed.
        click.echo(clean(f"{one.setting:<{width}}  {text}  ({one.origin})"))
    if not found.everything:
        talk("everything else has its default: tpuctl config show --all")
