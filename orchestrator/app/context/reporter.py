"""Define how use cases report and ask; nothing in `app/` prints."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

from orchestrator.domain.events import Event
from orchestrator.domain.plan import FailedChange
from orchestrator.domain.wait import Wait
from orchestrator.errors import Interrupted

Style = Literal["", "title", "command", "good", "done", "warning", "bad"]


class Reporter:
    """
    The interface to the people, or the program, that a command works for; also a `Sink` of events.

    As a context manager it shows the activity while the block runs. This base class reports nothing and
    cannot ask.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def use_clock(self, now: Callable[[], float]) -> None:
        """Take the clock of all times that are reported: the bucket's, as this computer's may be wrong."""

    def __call__(self, event: Event) -> None:
        """Take an event; a repeated text is reported once."""

    def say(self, text: str, *, style: Style = "") -> None:
        """Report one line."""

    def now(self, text: str, heartbeat_at: float | None = None) -> None:
        """Set the current activity; *heartbeat_at* is the time of the heartbeat that shows it."""

    def waiting(self, waits: Sequence[Wait], at: float) -> None:
        """Report what is waited for, each thing once."""

    def failure(self, failure: FailedChange, at: float) -> None:
        """Report what failed in a pass; the next pass retries it if that makes sense."""

    def can_ask(self) -> bool:
        """Return whether a user can answer questions."""
        return False

    def ask(self, question: str) -> None:
        """Ask for a confirmation; "no" ends the command."""


@contextmanager
def leaving(state: str | Callable[[], str], next_step: str | Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C in the block into Interrupted: *state* describes what remains, *next_step* how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        found = [one if isinstance(one, str) else one() for one in (state, next_step)]
        raise Interrupted(*found) from None
