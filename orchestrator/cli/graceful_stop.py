"""Stop a command that watches after the current pass at the first Ctrl-C, and at once at the second."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.app.context.signals import handled


@contextmanager
def graceful_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* at the first Ctrl-C in the block; the second one ends it at once."""
    pressed = False

    def interrupted(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        stop()

    # SIGTERM too: systemd or a stopping container wants the same graceful end.
    with handled((signal.SIGINT, signal.SIGTERM), interrupted):
        yield
