"""Show events as they come: time-stamped lines, NDJSON, and on a terminal a live line below them."""

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import click

from orchestrator.app.reporter import Reporter, Style
from orchestrator.cli import console
from orchestrator.cli.console import talk
from orchestrator.domain.amounts import span_text
from orchestrator.domain.clean_text import clean, cut, indented
from orchestrator.domain.events import Event
from orchestrator.domain.plan import FailedChange, Kind
from orchestrator.errors import NotFoundError

if TYPE_CHECKING:
    from orchestrator.cli.views.live_line import LiveLine

COLOURS = {
    "preempted": "red", "anew": "red", "invariant": "red", "refused": "yellow", "failure": "yellow",
    "uncommitted": "yellow", "done": "green", "ready": "green",
}  # fmt: skip
MARKS = {
    "ready": "✓", "done": "✓", "preempted": "✗", "anew": "✗", "invariant": "✗", "refused": "!", "failure": "!",
    "uncommitted": "!",
}  # fmt: skip
"""A sign before an event on a terminal, so that its colour says nothing alone."""
STYLES: dict[Style, str] = {
    "": "", "title": "bold", "command": "cyan", "good": "green", "done": "bold green", "warning": "yellow",
    "bad": "red",
}  # fmt: skip
FAILING = "failing"
"""The wait that counts a failure which repeats; no text of a plan is a single word."""
WIDTH = 10
"""Characters of the time before an event."""
REMINDER = 300.0
"""Seconds after which a wait that still lasts is said once more where no live line shows it."""


def wanted() -> bool:
    """Say whether somebody looks at a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


class Wait:
    """Remember one thing that is waited for: since when, and when it was said last."""

    def __init__(self, text: str, since: float) -> None:
        self.text = text
        self.since = since
        self.said: float | None = None


class EventPrinter(Reporter):
    """
    Print events as time-stamped lines to stderr, or as NDJSON to stdout.

    Used as a context manager it draws the live line, when somebody looks at a terminal.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._json = as_json
        self._last = ""
        self._shown_at = 0.0
        self._line: LiveLine | None = None
        self._now = ""
        self._share: tuple[float, str] | None = None
        self._heartbeat_at: float | None = None
        self._waits: dict[str, Wait] = {}
        self._begun = 0.0

    def __enter__(self) -> None:
        if not self._json and not console.quiet and wanted():
            # rich takes 40 ms to import, and only a terminal that somebody looks at needs it.
            from orchestrator.cli.views.live_line import LiveLine

            self._begun = time.time()
            self._line = LiveLine(self.line_text, lambda: self._share)
            self._line.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None

    @property
    def live(self) -> bool:
        """Say whether a live line is shown."""
        return self._line is not None

    def __call__(self, event: Event) -> None:
        """Print one event; the same text twice in a row is printed once."""
        if self._json:
            click.echo(event.to_json().decode())
            return
        if "tries" in event.data and not self._is_due(event):
            return
        # Events repeat what machines and the cloud say: nothing of that may steer the terminal.
        event = replace(event, text=indented(clean(event.text.rstrip()), WIDTH))
        if event.text == self._last:
            return
        self._last = event.text
        # Machines report what was a moment ago: a clock that runs backwards reads as a fault.
        self._shown_at = max(self._shown_at, event.at)
        stamp = time.strftime("%H:%M:%S", time.localtime(self._shown_at))
        style = COLOURS.get(event.kind, "")
        if self._line is not None:
            mark = MARKS.get(event.kind, " ") if self._line.blocks else ""
            self._line.above(f"{stamp} {mark}" if mark else stamp, event.text, style)
            return
        talk(f"{stamp}  {event.text}", style=style)

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        talk(text, style=STYLES[style])

    def can_ask(self) -> bool:
        """Say whether somebody sits at a terminal."""
        return sys.stdin.isatty()

    def ask(self, question: str) -> None:
        """Ask for a yes at the terminal; a no ends the command."""
        click.confirm(question, err=True, abort=True)

    def _is_due(self, event: Event) -> bool:
        """
        Count a failure that repeats in one line; say whether it is to be printed as an event too.

        It is for the first time, and again after some minutes where no live line counts.
        """
        tries, since = int(event.data["tries"]), float(event.data["since"])
        wait = self._waits.get(FAILING) if tries > 1 else None
        wait = wait or Wait("", since)
        wait.text = f"{tries} tries: {event.text}"
        self._waits = {FAILING: wait}
        if wait.said is None:
            wait.said = event.at
            return True
        if not self.live and event.at - wait.said >= REMINDER:
            wait.said = event.at
            span = span_text(event.at - since)
            self(Event(event.at, event.kind, f"still failing after {span}, {tries} tries: {event.text}"))
        return False

    def now(
        self, text: str, heartbeat_at: float | None = None, share: tuple[float, str] | None = None
    ) -> None:
        """Set what the live line shows, the time of its heartbeat, and the bar: from 0 to 1, with its text."""
        self._now, self._heartbeat_at, self._share = text, heartbeat_at, share

    def line_text(self, at: float) -> str:
        """Return the live line: what is waited for and for how long so far, then the job."""
        parts = [
            f"failing for {span_text(at - wait.since)}, {wait.text}" if key == FAILING
            # Counted in front: at the terminal's edge the line is cut.
            else f"{wait.text} ({span_text(at - wait.since)})"
            for key, wait in self._waits.items()
        ]  # fmt: skip
        if self._now:
            parts.append(self._now)
        if self._now and self._heartbeat_at is not None:
            parts.append(f"last heartbeat {span_text(at - self._heartbeat_at)} ago")
        seconds = f" ({span_text(at - self._begun)})" if self._begun else ""
        # It may name files: `fetch` shows what it copies, under the names that the job gave them.
        return cut(", ".join(parts), 1000) or f"looking at the cloud{seconds}"

    def waiting(self, texts: Sequence[str], at: float) -> None:
        """Say what is waited for, each thing once, and again after some minutes; the live line counts instead."""
        waits = {}
        for text in texts:
            # Without the seconds, which change with each pass: otherwise the same
            # wait would be said again each time.
            key = re.sub(r" (?:in|for) [\d.]+ s\b", "", text)
            waits[key] = self._waits.get(key) or Wait(key, at)
            waits[key].text = text
        self._waits = waits
        if not self.live:
            for wait in waits.values():
                self._say_wait(wait, at)

    def _say_wait(self, wait: Wait, at: float) -> None:
        if wait.said is None:
            self(Event(at, "waiting", f"waiting: {wait.text}"))
        elif at - wait.said >= REMINDER:
            self(Event(at, "waiting", f"still waiting after {span_text(at - wait.since)}: {wait.text}"))
        else:
            return
        wait.said = at

    def failure(self, failure: FailedChange, at: float) -> None:
        """Say what a pass failed at; the next pass tries again where that makes sense."""
        change = failure.change
        if change.kind is Kind.JOB and isinstance(failure.error, NotFoundError):
            return  # The machine has not published its keys: it still boots, and the plan says so.
        text = f"{change.kind.title} {change.name}: {failure.error.message} ({failure.error.code})"
        self(Event(at, "failure", text, failure.error.as_dict()))


class NamedPrinter(EventPrinter):
    """Print events of one of many deployments, each with its name; that steps go on is no line here."""

    def __init__(self, name: str, *, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self._name = name

    def __enter__(self) -> None:
        """Draw no live line: there is one for each deployment."""

    def __call__(self, event: Event) -> None:
        """Print one event with the deployment's name."""
        if self._json:
            super().__call__(replace(event, data={**event.data, "deployment": self._name}))
        elif event.kind != "progress":
            super().__call__(replace(event, text=f"{self._name}: {event.text}"))

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        super().say(f"{self._name}: {text}", style=style)

    def can_ask(self) -> bool:
        """Say that nobody is asked: many questions at once help nobody."""
        return False


class OverLiveLine(EventPrinter):
    """Print over the live line that a command of ours draws at the same time."""

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        if wanted() and not console.quiet:
            # Written raw, since the other command draws its line with rich and neither knows of the other.
            click.echo("\r\x1b[2K", err=True, nl=False)
        super().say(text, style=style)
