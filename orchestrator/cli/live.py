"""
One line at the foot of a terminal that shows what goes on right now.
"""

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
    """
    Say whether somebody looks at a terminal that can redraw a line.
    """
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


class LiveLine:
    """
    Draw *text* until it is stopped; it is asked for anew at each redraw, so it can count seconds.

    Lines printed meanwhile on *console* appear above it. It is cut at the terminal's edge, never wrapped.
    """

    def __init__(self, console: Console, text: Callable[[float], str]) -> None:
        self._text = text
        self._spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")
        self._live = Live(self, console=console, refresh_per_second=REFRESH, transient=True)

    def start(self) -> None:
        """
        Begin to draw.
        """
        self._live.start()

    def stop(self) -> None:
        """
        Erase the line.
        """
        self._live.stop()

    def __rich__(self) -> Table:
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(self._spinner, Text(self._text(time.time()), style="dim"))
        return row
