"""Show events as time-stamped lines, as NDJSON, or with a live line below them on a terminal."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import click

from orchestrator.app.context.reporter import Reporter, Style
from orchestrator.cli import console
from orchestrator.cli.console import talk
from orchestrator.cli.questions import approved
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.plan import FailedChange, Kind
from orchestrator.domain.text.amounts import span_text
from orchestrator.domain.text.clean_text import clean, cut, indented
from orchestrator.domain.wait import Wait
from orchestrator.errors import NotFoundError, Retry, TpuctlError

if TYPE_CHECKING:
    from orchestrator.cli.views.live_line import LiveLine

COLOURS: dict[str, str] = {
    EventKind.PREEMPTED: "red", EventKind.STARTED_OVER: "red", EventKind.INVARIANT: "red",
    EventKind.REFUSED: "yellow", EventKind.FAILURE: "yellow", EventKind.UNCOMMITTED: "yellow",
    EventKind.CHECKPOINT_IGNORED: "yellow",
    EventKind.READY: "green", EventKind.VM_RUNNING: "green",
}  # fmt: skip
MARKS: dict[str, str] = {
    EventKind.READY: "✓", EventKind.VM_RUNNING: "✓",
    EventKind.PREEMPTED: "✗", EventKind.STARTED_OVER: "✗", EventKind.INVARIANT: "✗",
    EventKind.REFUSED: "!", EventKind.FAILURE: "!", EventKind.UNCOMMITTED: "!",
    EventKind.CHECKPOINT_IGNORED: "!",
}  # fmt: skip
"""A sign before an event on a terminal, so that no meaning is in the colour alone."""
STYLES: dict[Style, str] = {
    "": "", "title": "bold", "command": "cyan", "good": "green", "done": "bold green", "warning": "yellow",
    "bad": "red",
}  # fmt: skip
FAILING = ("failing", "")
"""Key of the wait that counts a repeated failure; what a plan waits for is never a single word."""
WIDTH = 10
"""Characters of the time before an event."""
REMINDER = 300.0
"""Seconds after which a continuing wait is reported again, without a live line."""


BarAt: TypeAlias = Callable[[float], tuple[float, str] | None]
"""Returns the share done and the text beside the bar at a time; None without a bar."""


def _no_share(_at: float) -> None:
    return None


def _so_far(seconds: float) -> str:
    """Return for how long something is waited for; "" at its begin, when "0 s so far" says nothing."""
    return f" ({span_text(seconds)} so far)" if seconds >= 1 else ""


def wanted() -> bool:
    """Return whether stderr is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


class _Shown:
    """One thing that is waited for: since when, what it was at a time, and when it was last reported."""

    def __init__(self, wait: Wait, since: float) -> None:
        self.wait = wait
        self.since = self.at = since
        self.said: float | None = None


class EventPrinter(Reporter):
    """
    Prints events as time-stamped lines to stderr, or as NDJSON to stdout.

    As a context manager it draws a live line on a terminal.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._json = as_json
        self._last = ""
        self._shown_at = 0.0
        self._line: LiveLine | None = None
        self._now = ""
        self._share: BarAt = _no_share
        self._heartbeat_at: float | None = None
        self._shorter: Sequence[str] = ()
        self._waits: dict[tuple[str, str], _Shown] = {}
        self._begun = 0.0
        self._clock: Callable[[], float] = time.time
        self._advised: set[str] = set()
        self.spoke_at = 0.0

    def __enter__(self) -> None:
        if not self._json and not console.quiet and wanted():
            # rich takes 40 ms to import, and only a terminal needs it.
            from orchestrator.cli.views.live_line import LiveLine

            self._begun = time.time()
            self._line = LiveLine(self.line_text, lambda: self.bar(self.clock()), self.clock)
            self._line.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None

    def use_clock(self, now: Callable[[], float]) -> None:
        """Take the clock of the times that are reported."""
        self._clock = now

    def clock(self) -> float:
        """Return the present time by the clock of what is reported: an age is between two times of one clock."""
        return self._clock()

    @property
    def activity(self) -> str:
        """Return what the command is at, without what is waited for; empty if it has not said."""
        # Cut: `fetch` shows file names here, which the job has chosen.
        return cut(self._now, 200)

    @property
    def live(self) -> bool:
        """Return whether a live line is shown."""
        return self._line is not None

    def __call__(self, event: Event) -> None:
        """Print one event; the same text twice in a row is printed once."""
        if self._json:
            click.echo(json.dumps(event.as_dict(), sort_keys=True))
            return
        if "tries" in event.data and not self._is_due(event):
            return
        # Events contain text of machines and of the cloud, so control characters are removed.
        event = replace(event, message=indented(clean(event.message.rstrip()), WIDTH))
        if event.message == self._last:
            return
        self._last, self.spoke_at = event.message, time.monotonic()
        # Machines report events late; times that go backwards would look like an error.
        self._shown_at = max(self._shown_at, event.at)
        stamp = time.strftime("%H:%M:%S", time.localtime(self._shown_at))
        style = COLOURS.get(event.kind, "")
        if self._line is not None:
            mark = MARKS.get(event.kind, " ") if self._line.blocks else ""
            self._line.above(f"{stamp} {mark}" if mark else stamp, event.message, style)
            return
        talk(f"{stamp}  {event.message}", style=style)

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        self.spoke_at = time.monotonic()
        talk(text, style=STYLES[style])

    def can_ask(self) -> bool:
        """Return whether a user is at a terminal."""
        return sys.stdin.isatty()

    def ask(self, question: str) -> None:
        """Ask for a confirmation on the terminal; "no" ends the command."""
        approved(question, abort=True)

    def _is_due(self, event: Event) -> bool:
        """
        Count a repeated failure in one line; return whether to print it as an event too.

        That is so the first time and, without a live line, again after some minutes.
        """
        tries, since = int(event.data["tries"]), float(event.data["since"])
        wait = self._waits.get(FAILING) if tries > 1 else None
        wait = wait or _Shown(Wait(""), since)
        wait.wait = Wait(f"{tries} {'try' if tries == 1 else 'tries'}: {event.message}")
        self._waits = {FAILING: wait}
        if wait.said is None:
            wait.said = event.at
            return True
        if not self.live and event.at - wait.said >= REMINDER:
            wait.said = event.at
            span = span_text(event.at - since)
            self(Event(event.at, event.kind, f"still failing after {span}, {tries} tries: {event.message}"))
        return False

    def now(
        self, text: str, heartbeat_at: float | None = None, share: BarAt | None = None,
        shorter: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """
        Set the text of the live line, the time of its heartbeat, and the bar (0 to 1, and its text) by the time.

        *shorter* has ever shorter texts, for want of room.
        """
        if self._now and not text:
            self._checks_again()
        self._now, self._heartbeat_at, self._shorter = text, heartbeat_at, shorter
        # By the time of a redraw, since the time left counts down between two passes.
        self._share = share or _no_share

    def _checks_again(self) -> None:
        """Count the seconds of a check of the cloud from now on, not from the start of the command."""
        self._begun = time.time() if self._begun else 0.0

    def line_text(self, at: float, width: int = 0) -> str:
        """
        Return the live line: what is waited for and since when, then the job.

        Of the texts about the job it is the longest one with which the line fits *width* (0: any).
        """
        lines = [self._line_with(text, at) for text in (self._now, *self._shorter)]
        return next((line for line in lines if len(line) <= width), lines[-1] if width else lines[0])

    def _line_with(self, now: str, at: float) -> str:
        parts = [self.waits_text(at)] if self._waits else []
        if now:
            parts.append(now)
        if self._now and self._heartbeat_at is not None:
            parts.append(f"last heartbeat {span_text(at - self._heartbeat_at)} ago")
        # By the computer's clock: the other one is set to the bucket's in the middle of the first check.
        seconds = f" ({span_text(at - self.clock() + time.time() - self._begun)})" if self._begun else ""
        # Cut: `fetch` shows file names here, which the job has chosen.
        return cut(", ".join(parts), 1000) or f"checking the cloud{seconds}"

    def bar(self, at: float) -> tuple[float, str] | None:
        """Return the share done (0 to 1) and the text beside its bar at the time *at*; None without a bar."""
        return self._share(at)

    def waits_text(self, at: float) -> str:
        """Return what is waited for, and for how long; empty for nothing."""
        parts = [
            f"failing for {span_text(at - shown.since)}, {shown.wait.text}" if key == FAILING
            # The duration in front, since the line is cut at the terminal's edge.
            else f"{shown.wait.later(at - shown.at).text}{_so_far(at - shown.since)}"
            for key, shown in self._waits.items()
        ]  # fmt: skip
        return ", ".join(parts)

    def waiting(self, waits: Sequence[Wait], at: float) -> None:
        """Report what is waited for, each thing once and again after some minutes; a live line shows it instead."""
        known, self._waits = self._waits, {}
        if known and not waits:
            self._checks_again()
        for wait in waits:
            # Without the seconds, which change with each pass, or the same wait would be reported each time.
            key = (wait.what, wait.message)
            shown = self._waits[key] = known.get(key) or _Shown(wait, at)
            shown.wait, shown.at = wait, at
        if not self.live:
            for shown in self._waits.values():
                self._say_wait(shown, at)

    def _say_wait(self, shown: _Shown, at: float) -> None:
        text = shown.wait.text
        if shown.said is None:
            self(Event(at, EventKind.WAITING, f"waiting: {text}"))
        elif at - shown.said >= REMINDER:
            self(Event(at, EventKind.WAITING, f"still waiting after {span_text(at - shown.since)}: {text}"))
        else:
            return
        shown.said = at

    def failure(self, failure: FailedChange, at: float) -> None:
        """Report what failed in a pass; the next pass retries it if that makes sense."""
        change = failure.change
        if change.kind is Kind.JOB and isinstance(failure.error, NotFoundError):
            return  # The machine has not published its keys: it is booting, which the plan reports.
        if failure.waiting:
            # No failure to people: nothing is wrong, and the loop continues by itself.
            self(Event(at, EventKind.WAITING, f"waiting: {failure.waiting}", failure.error.as_dict()))
            return
        text = f"{change.kind.title} {change.name}: {failure.error.message} ({failure.error.code})"
        if not self._json and self._is_first_of(failure.error):
            text = f"{text}\nnext: {failure.error.hint}"
        self(Event(at, EventKind.FAILURE, text, failure.error.as_dict()))

    def _is_first_of(self, error: TpuctlError) -> bool:
        """Return whether *error* has advice about capacity or quota that was not given yet."""
        if error.retry not in {Retry.CAPACITY, Retry.QUOTA} or not error.hint or error.hint in self._advised:
            return False
        self._advised.add(error.hint)
        return True


class NamedPrinter(EventPrinter):
    """Prints the events of one of many deployments with its name, and leaves out progress."""

    def __init__(self, name: str, *, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self._name = name

    def __enter__(self) -> None:
        """Draw no live line: there is one for each deployment."""

    def __call__(self, event: Event) -> None:
        """Print one event with the deployment's name."""
        if self._json:
            super().__call__(replace(event, data={**event.data, "deployment": self._name}))
        elif event.kind != EventKind.PROGRESS:
            super().__call__(replace(event, message=f"{self._name}: {event.message}"))

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        super().say(f"{self._name}: {text}", style=style)

    def can_ask(self) -> bool:
        """Return False: with many deployments, questions would interrupt each other."""
        return False


class OverLiveLine(EventPrinter):
    """Prints above the live line of another command, which tpuctl has started."""

    def say(self, text: str, *, style: Style = "") -> None:
        """Print a plain line to stderr."""
        self.spoke_at = time.monotonic()
        # Raw, because another process draws the line with rich, and in one write, or it draws in between.
        talk(text, style=STYLES[style], before="\r\x1b[2K" if wanted() else "")
