"""One line at the foot of a terminal that shows what goes on right now."""

import os
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

REFRESH = 4.0
"""Redraws in a second: enough for a clock that counts seconds, and cheap."""


def wanted() -> bool:
    """Say whether somebody looks at a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


class LiveLine:
    """
    Draw *text* until it is stopped; it is asked for anew at each redraw, so it can count seconds.

    It is cut at the terminal's edge, never wrapped.
    """

    def __init__(self, text: Callable[[float], str]) -> None:
        console = Console(stderr=True, highlight=False)
        self._console = console
        self._text = text
        self._spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")
        self._live = Live(self, console=console, refresh_per_second=REFRESH, transient=True)

    def start(self) -> None:
        """Begin to draw."""
        self._live.start()

    def stop(self) -> None:
        """Erase the line."""
        self._live.stop()

    def above(self, stamp: str, text: str, style: str) -> None:
        """Print an event above the line, wrapped between words."""
        row = Table.grid(padding=(0, 2))
        row.add_column(no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(stamp), Text(text, style=style))
        self._console.print(row)

    def __rich__(self) -> Text:
        frame = self._spinner.render(self._console.get_time())
        words = Text(f" {self._text(time.time())}", style="dim")
        # Never wrapped: rich could not erase a line that the terminal has broken into two.
        line = Text(no_wrap=True, overflow="ellipsis")
        return line.append_text(frame if isinstance(frame, Text) else Text("-")).append_text(words)
