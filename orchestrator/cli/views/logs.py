"""Show log lines; control characters are removed unless raw output is requested."""

import json
import sys
import time
from dataclasses import dataclass, field

import click

from orchestrator.cli.console import columns, put, wrapped
from orchestrator.contract.agent_lines import (
    END,
    agent_line,
    begins_attempt,
    ends_agent,
    is_agent_line,
)
from orchestrator.domain.events import Event
from orchestrator.domain.text.clean_text import clean

INDENT = "    "
"""Before a continuation of an agent's line: with the same mark as the first part it would be a second message."""


@dataclass(frozen=True)
class JobLines:
    """
    Prints lines of the job's log, with the worker's number if *numbered*.

    Between the lines of two machines it says if the first one's log has no end, because that machine was lost.
    """

    as_json: bool
    raw: bool
    numbered: bool
    _newest: dict[int, int] = field(default_factory=dict, init=False)
    """The newest TPU whose lines were printed, by worker."""
    _open: set[tuple[int, int]] = field(default_factory=set, init=False)
    """(incarnation, worker) of the machines whose agent has written no end so far."""

    def show(self, incarnation: int, worker: int, line: str) -> None:
        """Print one line; control characters pass only with *raw*."""
        if self.as_json:
            click.echo(json.dumps({"incarnation": incarnation, "worker": worker, "line": line}))
            return
        self._say_lost(incarnation, worker)
        if ends_agent(line):
            self._open.discard((incarnation, worker))
        elif incarnation > self._newest.get(worker, 0) or begins_attempt(line):
            self._open.add((incarnation, worker))
        self._newest[worker] = max(incarnation, self._newest.get(worker, 0))
        self._print(worker, line)

    def end(self, *, found: bool, deleted: bool, older: bool = False) -> None:
        """
        Say if there was no line, or whose log has no end because `down` has *deleted* the machine.

        *older* says that there are lines, and none in the time that was asked for.
        """
        if self.as_json:
            return
        if not found:
            # To stderr and with exit code 0, because a job that has printed nothing yet is no error.
            none = "nothing was added to the log in that time; all of it: `tpuctl logs`"
            click.echo(none if older else "no log yet; see `tpuctl status`", err=True)
        for worker, incarnation in sorted(self._newest.items()) if deleted else ():
            if (incarnation, worker) in self._open:
                text = (
                    f"TPU #{incarnation} was deleted here; the last lines that it wrote may be lost with it"
                )
                self._print(worker, agent_line(text))

    def _say_lost(self, incarnation: int, worker: int) -> None:
        """Say before the first line of a machine that the one before it was lost, if it was."""
        before = self._newest.get(worker, incarnation)
        if before < incarnation and (before, worker) in self._open:
            text = f"TPU #{before} was lost here; the last lines that it wrote may be lost with it"
            self._print(worker, agent_line(text))

    def _print(self, worker: int, line: str) -> None:
        start = f"w{worker} " if self.numbered else ""
        shown = fitted(line, columns() - len(start)) if is_agent_line(line) else parts_of(line)
        for part in [line] if self.raw else shown:
            # Control characters pass only with --raw, the user's own wish.
            (click.echo if self.raw else put)(f"{start}{part}")


def show_event(event: Event, *, as_json: bool) -> None:
    """Print an event with date and time."""
    if as_json:
        put(json.dumps(event.as_dict(), sort_keys=True))
        return
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    # Cleaned first: a line feed in a text of the cloud would be taken for a blank.
    for line in wrapped(
        [clean(f"{stamp}  {event.message}")], columns(), " " * (len(stamp) + 2), break_long=False
    ):
        put(line)


def fitted(line: str, width: int) -> list[str]:
    """Wrap a line of the agent's between words, continuations indented; a width below 1 wraps nothing."""
    # Without its end, which must not stand alone in the last line.
    *first, last = wrapped([line.removesuffix(END)], max(width - len(END), 0), INDENT, break_long=False)
    return [*first, last + END]


def parts_of(line: str) -> list[str]:
    """Split a line that is redrawn with carriage returns: on a terminal its last state, elsewhere all parts."""
    parts = [part for part in line.split("\r") if part] or [""]
    return parts[-1:] if sys.stdout.isatty() else parts
