"""Show all known deployments as a table: once, as lines of a log, or interactively on a terminal."""

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.app.context.choice import Choice
from orchestrator.app.status.all_deployments import DeploymentRow, Deployments
from orchestrator.app.status.text import checkpoint_text, eta_text, job_text, phase_text, step_text
from orchestrator.cli.console import columns, print_json, put, say
from orchestrator.cli.views.paint import END, colour_of, wants_colour
from orchestrator.cli.views.redraw import EVERY, redraws, repeat
from orchestrator.cli.views.status import WIDTH, painted, status_rows
from orchestrator.clock import SystemClock
from orchestrator.domain.status import DeploymentStatus
from orchestrator.domain.text.amounts import usd_range
from orchestrator.domain.text.clean_text import clean
from orchestrator.domain.text.phase_words import phase_words
from orchestrator.errors import Retry, TpuctlError

TITLES = ("deployment", "state", "job", "checkpoint", "preempted", "cost in USD")
HELP = "up/down: select   Enter: details   s: sort   r: reverse   q: quit"
HELP_DETAILS = "Esc: back   up/down: next deployment   q: quit"
NAMES = {"\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
         "\r": "enter", "\n": "enter", "\x1b": "back", "\x7f": "back", "q": "quit", "\x03": "quit",
         "s": "sort", "r": "reverse"}  # fmt: skip
"""The bytes that a key sends, and its action."""


def show_all(choice: Choice, *, follow: bool) -> None:
    """Show all known deployments, once or repeatedly."""
    deployments = Deployments(choice)
    if follow and not choice.as_json and redraws() and sys.stdin.isatty():
        browse(choice, deployments)
        return
    if follow:

        def observe() -> tuple[Any, bool]:
            return (_body(deployments.rows()) if choice.as_json else deployments.rows()), False

        repeat(choice, SystemClock(), "deployments", observe, _drawn, _news)
        return
    rows = deployments.rows()
    if choice.as_json:
        print_json("deployments", _body(rows))
    elif rows:
        put(_drawn(rows))
    else:
        say(f"no deployment of this computer exists on --cloud {choice.cloud}; next: tpuctl up")


@dataclass(frozen=True)
class Browser:
    """
    The user's selection: the row of the *cursor*, the column *sort*, and the order.

    *details* shows one deployment on the whole screen.
    """

    cursor: int = 0
    sort: int = 0
    reverse: bool = False
    details: bool = False
    over: bool = False

    def press(self, key: str, rows: int) -> "Browser":
        """Return the selection after a key press, among *rows* rows."""
        last = max(0, rows - 1)
        if key == "up":
            return replace(self, cursor=max(0, min(self.cursor, last) - 1))
        if key == "down":
            return replace(self, cursor=min(last, self.cursor + 1))
        if key == "sort":
            return replace(self, sort=(self.sort + 1) % len(TITLES))
        if key == "reverse":
            return replace(self, reverse=not self.reverse)
        if key in {"enter", "back"}:
            return replace(self, details=key == "enter" and rows > 0)
        return replace(self, over=self.over or key == "quit")

    def ordered(self, rows: Sequence[DeploymentRow]) -> list[DeploymentRow]:
        """Return the rows in the selected order."""
        return sorted(rows, key=self._key, reverse=self.reverse)

    def _key(self, row: DeploymentRow) -> tuple[Any, ...]:
        known = row.status
        figures = {"preempted": known and known.preemptions, TITLES[-1]: known and known.usd}
        title = TITLES[self.sort]
        # Unknown values sort first, and texts are not compared as numbers.
        figure = figures.get(title)
        return (
            (-1 if figure is None else figure),
            "" if title in figures else _cells(row)[self.sort],
            row.name,
        )


def browse(choice: Choice, deployments: Deployments) -> None:
    """Draw the table on the whole terminal until q or Ctrl-C; a thread observes the cloud."""
    observer = _Observer(deployments.rows)
    browser = Browser()
    console = Console(highlight=False)
    try:
        with _keys() as key_within, Live(console=console, screen=True, auto_refresh=False) as live:
            observer.start()
            while not browser.over:
                rows = browser.ordered(observer.rows)
                live.update(_page(browser, rows, observer, deployments, console, choice), refresh=True)
                key = key_within(0.5)
                browser = browser.press(key, len(rows)) if key else browser
                if observer.error is not None:
                    raise observer.error
    except KeyboardInterrupt:
        pass
    finally:
        observer.stop()


class _Observer:
    """Observes repeatedly in a thread, so that keys respond at once however slow the cloud is."""

    def __init__(self, observe: Callable[[], list[DeploymentRow]]) -> None:
        self._observe = observe
        self._over = threading.Event()
        self.rows: list[DeploymentRow] = []
        self.message = "checking the cloud"
        self.error: BaseException | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.rows, self.message = self._observe(), ""
                if not self.rows:
                    self.message = "no deployment of this computer exists; next: tpuctl up"
            except TpuctlError as error:
                if error.retry is not Retry.TRANSIENT:
                    self.error = error
                    return
                self.message = f"{error.message} ({error.code}); trying again"
            # Kept for the main thread to raise; an exception in a thread would be lost.
            except BaseException as error:
                self.error = error
                return
            self._over.wait(EVERY)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key and returns its action; restore the terminal after."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def key_within(seconds: float) -> str:
        if not select.select([fd], [], [], seconds)[0]:
            return ""
        # A key such as an arrow sends several bytes at once.
        return NAMES.get(os.read(fd, 8).decode(errors="replace"), "other")

    try:
        tty.setcbreak(fd)
        yield key_within
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _page(
    browser: Browser, rows: list[DeploymentRow], observer: _Observer, deployments: Deployments, console: Console,
    choice: Choice,
) -> Group:  # fmt: skip
    cursor = min(browser.cursor, max(0, len(rows) - 1))
    foot = Text(HELP_DETAILS if browser.details else HELP, style="dim", no_wrap=True, overflow="ellipsis")
    message = [Text(clean(observer.message), style="yellow")] if observer.message else []
    chosen = deployments.details.get((rows[cursor].project, rows[cursor].name)) if rows else None
    if browser.details and chosen is not None:
        lines = status_rows(
            chosen, unbilled=choice.cloud == "local", width=console.width - 1, wide=True, drawn=True
        )
        text = Text.from_ansi(clean("\n".join(painted(lines)), colours=True))
        return Group(text, *message, Text(), foot)
    # One line for each row, so that the cursor's row stays on the screen.
    room = max(1, console.height - 4 - len(message))
    first = max(0, min(cursor - room // 2, len(rows) - room))
    found = _table(rows[first : first + room], browser, cursor - first, narrow=console.width < WIDTH)
    return Group(found, *message, Text(), foot)


def _table(
    rows: list[DeploymentRow], browser: Browser | None = None, cursor: int = -1, *, narrow: bool = False
) -> Table:
    """
    Return the table; with a *browser* each row is one line, and signs mark cursor and order.

    *narrow* omits checkpoint and preemptions in favour of name, state and step.
    """
    columns_of = [0, 1, 2, 5] if narrow else range(len(TITLES))
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=browser is not None)
    for number in columns_of:
        title = TITLES[number]
        mark = (" ^" if browser.reverse else " v") if browser and browser.sort == number else ""
        fold = "ellipsis" if browser else "fold"
        shown.add_column(title + mark, overflow=fold, no_wrap=browser is not None)  # type: ignore[arg-type]
    for number, row in enumerate(rows):
        name, word, *rest = (clean(cell) for cell in _cells(row))
        sign = ("> " if number == cursor else "  ") if browser else ""
        paint = colour_of(row.status.state) if row.status else ""
        cells = [
            Text(sign + name),
            Text.from_ansi(f"{paint}{word}{END}" if paint else word),
            *map(Text, rest),
        ]
        shown.add_row(*(cells[column] for column in columns_of), style="reverse" if number == cursor else "")
    return shown


def _body(rows: list[DeploymentRow]) -> dict[str, Any]:
    return {"deployments": [row.as_dict() for row in rows]}


def _drawn(rows: list[DeploymentRow]) -> str:
    return table(rows, min(WIDTH, columns() or WIDTH), colour=wants_colour())


def table(rows: list[DeploymentRow], width: int, *, colour: bool = False) -> str:
    """Return the deployments as a table of *width* characters."""
    console = Console(
        width=width, highlight=False, markup=False, color_system="standard" if colour else None,
        force_terminal=colour or None,
    )  # fmt: skip
    with console.capture() as captured:
        console.print(_table(rows))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _cells(row: DeploymentRow) -> tuple[str, ...]:
    body = row.status
    if body is None:
        return row.name, row.word or "-", "-", "-", "-", "-"
    return (
        row.name, row.word or "-", _brief(body), checkpoint_text(body, step="") or "-",
        str(body.preemptions), usd_range(body.usd, body.upper_usd),
    )  # fmt: skip


def _brief(body: DeploymentStatus) -> str:
    """Return the job's progress without what the state column shows, so that a row fits one line."""
    phase = phase_text(body)
    parts = (
        "" if phase in {"run", "done"} or body.state.without_tpu else phase_words(phase),
        step_text(body),
        eta_text(body),
    )
    return ", ".join(part for part in parts if part) or "-"


def _news(rows: list[DeploymentRow]) -> list[tuple[Any, str]]:
    """Return a line for each deployment, with a key whose change prints it at once."""
    found = []
    for row in rows:
        body = row.status
        job, phase = (job_text(body), phase_text(body)) if body else ("", "")
        line = ", ".join(part for part in (row.name, row.word, job) if part)
        count = body.preemptions if body else None
        found.append(((row.project, row.name, row.word, phase, count), line))
    return found
