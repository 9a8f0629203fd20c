"""Say now and then that a command is still at work, while it has nothing else to print."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.cli.console import talk
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.domain.text.amounts import span_text

SILENCE = 15.0
"""Seconds without a line after which one says what is waited for."""
POLL_SECONDS = 1.0
"""Seconds between two checks of how long nothing was printed."""


class StillWaiting:
    """Prints a line after each SILENCE in which *printer* printed none, but not while a question waits."""

    def __init__(self, printer: EventPrinter) -> None:
        self._printer = printer
        self._began = self._said = time.monotonic()
        self._asks = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Watch over the block."""
        over = threading.Event()

        def remind() -> None:
            while not over.wait(POLL_SECONDS):
                self.remind(time.monotonic())

        watcher = threading.Thread(target=remind, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Print nothing in the block, which asks a question."""
        self._asks = True
        try:
            yield
        finally:
            self._asks, self._said = False, time.monotonic()

    def remind(self, now: float) -> None:
        """Print a line if nothing was printed for SILENCE seconds up to *now*."""
        if self._asks or now - max(self._said, self._printer.spoke_at) < SILENCE:
            return
        self._said = now
        waits = self._printer.waits_text(self._printer.clock()) or self._printer.activity
        after = f"still at work after {span_text(now - self._began)}"
        talk(f"{time.strftime('%H:%M:%S')}  {after}{f': {waits}' if waits else ''}")
