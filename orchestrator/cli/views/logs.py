"""Show lines of logs: what a job writes steers no terminal unless it is asked for raw."""

import json
import sys
import time
from dataclasses import dataclass

import click

from orchestrator.cli.console import put
from orchestrator.domain.events import Event


@dataclass(frozen=True)
class JobLines:
    """Print lines of the job's log, with *numbered* each with its worker."""

    as_json: bool
    raw: bool
    numbered: bool

    def show(self, incarnation: int, worker: int, line: str) -> None:
        """Print one line."""
        if self.as_json:
            click.echo(json.dumps({"incarnation": incarnation, "worker": worker, "line": line}))
            return
        start = f"w{worker} " if self.numbered else ""
        for part in [line] if self.raw else parts_of(line):
            # --raw is the user's own wish: elsewhere nothing of the job steers the terminal.
            (click.echo if self.raw else put)(f"{start}{part}")


def show_event(event: Event, *, as_json: bool) -> None:
    """Print what tpuctl did, with date and time."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    put(event.to_json().decode() if as_json else f"{stamp}  {event.text}")


def parts_of(line: str) -> list[str]:
    """Return what a terminal would leave of a line that is drawn again and again; elsewhere all of it in lines."""
    parts = [part for part in line.split("\r") if part] or [""]
    return parts[-1:] if sys.stdout.isatty() else parts
