"""
Where words go: data to stdout, talk to stderr, plain lines when nobody looks at a terminal.
"""

import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.core.events import Event
from orchestrator.errors import TpuctlError

if TYPE_CHECKING:
    from orchestrator.engine.act import Failure

SCHEMA_VERSION = 1
COLOURS = {"preempted": "red", "refused": "yellow", "failure": "yellow", "done": "green", "ready": "green"}


def print_json(kind: str, body: dict[str, Any]) -> None:
    """
    Print one JSON document to stdout.
    """
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **body}, indent=2))


def say(text: str, *, style: str = "") -> None:
    """
    Print talk to stderr, in colour on a terminal that wants it.
    """
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(text, style=style or None, markup=False)


def show_error(error: TpuctlError, args: Sequence[str]) -> None:
    """
    Print an expected error: what, what was and was not changed, what to do next.
    """
    if "--json" in args:
        print_json("error", error.as_dict())
        return
    say(f"error {error.code}: {error.message}", style="bold red")
    if error.unchanged:
        say(f"  state: {error.unchanged}")
    if error.hint:
        say(f"  next:  {error.hint}")


def show_bug(error: Exception) -> None:
    """
    Print what a bug left behind: one line here, the whole story in a file.
    """
    import platform
    import tempfile

    from orchestrator import __version__

    with tempfile.NamedTemporaryFile("w", prefix="tpuctl-bug-", suffix=".txt", delete=False) as file:
        file.write(f"tpuctl {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
        traceback.print_exception(error, file=file)
    say(f"error TPU-000: this is a bug in tpuctl: {type(error).__name__}: {error}", style="bold red")
    say(f"  next:  please report it with the file {Path(file.name)}")


class EventPrinter:
    """
    Print events as time-stamped lines to stderr, or as NDJSON to stdout.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._last = ""
        self._waiting: tuple[str, ...] = ()

    def __call__(self, event: Event) -> None:
        """
        Print one event; the same text twice in a row is printed once.
        """
        if self._json:
            click.echo(event.to_json().decode())
            sys.stdout.flush()
            return
        if event.text == self._last:
            return
        self._last = event.text
        stamp = time.strftime("%H:%M:%S", time.localtime(event.at))
        say(f"{stamp}  {event.text}", style=COLOURS.get(event.kind, ""))

    def waiting(self, texts: Sequence[str], at: float) -> None:
        """
        Say what is waited for, each thing once for as long as it lasts.
        """
        for text in texts:
            if text not in self._waiting:
                self(Event(at, "waiting", f"waiting: {text}"))
        self._waiting = tuple(texts)

    def failure(self, failure: "Failure", at: float) -> None:
        """
        Say what a pass failed at; the next pass tries again where that makes sense.
        """
        change = failure.change
        text = f"{change.kind.value} {change.name}: {failure.error.message} ({failure.error.code})"
        self(Event(at, "failure", text, failure.error.as_dict()))
