"""Draw the current activity at the bottom of a terminal: one line, and a bar if the share done is known."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orchestrator.cli.views.paint import BAR, bar
from orchestrator.domain.text.amounts import progress_percent

REFRESH = 4.0
"""Redraws per second; enough for a clock in seconds, and cheap."""


class LiveLine:
    """
    Draws *text* until stopped; calls it at each redraw, with the time by *clock* and the room in characters.

    It is cut at the terminal's edge, never wrapped.
    """

    def __init__(
        self,
        text: Callable[[float, int], str],
        share: Callable[[], tuple[float, str] | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._share = share
        self._clock = clock
        console = Console(stderr=True, highlight=False)
        self._console = console
        self.blocks = console.encoding.startswith("utf")
        self._text = text
        self._spinner = Spinner("dots" if self.blocks else "line")
        self._live = Live(self, console=console, refresh_per_second=REFRESH, transient=True)

    def start(self) -> None:
        """Start drawing, REFRESH times a second."""
        self._live.start()
        # rich hides the cursor until `stop`, which a kill never reaches: the shell would be left without one.
        self._console.show_cursor(True)

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
        # One for the spinner, one for the blank, and one that stays free for the cursor.
        words = Text(f" {self._text(self._clock(), self._console.width - 3)}", style="dim")
        # Never wrapped, because rich cannot erase a line that the terminal has wrapped.
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append_text(frame if isinstance(frame, Text) else Text("-")).append_text(words)
        found = self._share()
        if found is not None:
            share, beside = found
            room = max(10, min(BAR, self._console.width // 3))
            drawn = bar(share, room, blocks=self.blocks)
            full = round(max(0.0, min(1.0, share)) * room)
            # The bar is above the text, so that what changes most is next to the cursor.
            top = (
                Text("  ")
                .append(drawn[:full], "green")
                .append(drawn[full:], "dim")
                .append(f" {progress_percent(share)}  {beside}\n")
            )
            return Text(no_wrap=True, overflow="ellipsis").append_text(top).append_text(line)
        return line
