"""Show log lines; control characters are removed unless raw output is requested."""

import json
import sys
import time
from dataclasses import dataclass

import click

from orchestrator.cli.console import put
from orchestrator.domain.events import Event


@dataclass(frozen=True)
class JobLines:
    """Prints lines of the job's log, with the worker's number if *numbered*."""

    as_json: bool
    raw: bool
    numbered: bool

    def show(self, incarnation: int, worker: int, line: str) -> None:
        """Print one line; control characters pass only with *raw*."""
        if self.as_json:
            click.echo(json.dumps({"incarnation": incarnation, "worker": worker, "line": line}))
            return
        start = f"w{worker} " if self.numbered else ""
        for part in [line] if self.raw else parts_of(line):
            # Control characters pass only with --raw, the user's own wish.
            (click.echo if self.raw else put)(f"{start}{part}")


def show_event(event: Event, *, as_json: bool) -> None:
    """Print an event with date and time."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    put(event.to_json().decode() if as_json else f"{stamp}  {event.text}")


def parts_of(line: str) -> list[str]:
    """Split a line that is redrawn with carriage returns: on a terminal its last state, elsewhere all parts."""
    parts = [part for part in line.split("\r") if part] or [""]
    return parts[-1:] if sys.stdout.isatty() else parts
