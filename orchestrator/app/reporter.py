"""What a use case tells while it works, and asks; nobody prints in `app/`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

from orchestrator.domain.events import Event
from orchestrator.domain.plan import FailedChange
from orchestrator.errors import Interrupted

Style = Literal["", "title", "command", "good", "done", "warning", "bad"]


class Reporter:
    """
    Stand for the people, or the program, that a command works for. It is a `Sink` of events too.

    As a context manager it shows what goes on while the block runs. This one tells nobody and asks nobody.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, event: Event) -> None:
        """Take an event; the same text twice in a row is told once."""

    def say(self, text: str, *, style: Style = "") -> None:
        """Tell one line."""

    def now(self, text: str, heartbeat_at: float | None = None) -> None:
        """Set what goes on right now; *heartbeat_at* is the time of the heartbeat it rests on."""

    def waiting(self, texts: Sequence[str], at: float) -> None:
        """Tell what is waited for, each thing once."""

    def failure(self, failure: FailedChange, at: float) -> None:
        """Tell what a pass failed at; the next pass tries again where that makes sense."""

    def can_ask(self) -> bool:
        """Say whether somebody is there who can answer."""
        return False

    def ask(self, question: str) -> None:
        """Ask for a yes; a no ends the command."""


@contextmanager
def leaving(state: str | Callable[[], str], next_step: str) -> Iterator[None]:
    """Raise Interrupted when somebody presses Ctrl-C inside: *state* is what is so then, *next_step* goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(state if isinstance(state, str) else state(), next_step) from None
