"""Show each setting with its origin."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.cli.console import print_json, talk
from orchestrator.config.origins import ValueOrigin
from orchestrator.domain.text.clean_text import clean


def show(path: Path, found: Sequence[ValueOrigin], *, everything: bool, as_json: bool) -> None:
    """Print one line for each setting."""
    if as_json:
        print_json("config", {"file": str(path), "settings": [asdict(one) for one in found]})
        return
    width = max((len(one.key) for one in found), default=0)
    for one in found:
        text = one.value if isinstance(one.value, str) else json.dumps(one.value)
        # Settings may come from another person's project, so control characters are removed.
        click.echo(clean(f"{one.key:<{width}}  {text}  ({one.origin})"))
    if not everything:
        talk("everything else has its default: tpuctl config show --all")
