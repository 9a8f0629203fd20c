"""What is said when Ctrl-C ends a command: what stays as it is, and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Interrupted


@contextmanager
def leaving(state: str, next_step: str) -> Iterator[None]:
    """Raise Interrupted with *state* and *next_step* when somebody presses Ctrl-C inside."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(state, next_step) from None
