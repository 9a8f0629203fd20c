"""Report an outage of the cloud once while a command polls it, and poll less often until it ends."""

from collections.abc import Callable

from orchestrator.clock import Clock
from orchestrator.contract.backoff import Backoff, ConsecutiveFailures
from orchestrator.domain.text.amounts import span_text
from orchestrator.errors import TpuctlError

MAX_PAUSE = 60.0
"""Longest pause between two polls during an outage, in seconds."""
REMINDER = 300.0
"""Seconds after which a continuing outage is reported again."""


class Outage:
    """Counts failed polls and reports them through *say*; *every* is the usual pause in seconds."""

    def __init__(self, clock: Clock, every: float, say: Callable[[str], None]) -> None:
        self._clock, self._say = clock, say
        self._failures = ConsecutiveFailures(Backoff(every, max(every, MAX_PAUSE)))
        self._said = 0.0

    def failed(self, error: TpuctlError) -> None:
        """Record a failed poll, and wait until the next one is due."""
        now, failures = self._clock.monotonic(), self._failures
        failures.failed(now)
        if failures.count == 1:
            self._said = now
            self._say(
                f"{error.message} ({error.code}); trying again at least once a minute, until it answers"
            )
        if now - self._said >= REMINDER:
            self._said = now
            span = span_text(now - failures.since)
            self._say(f"still no answer after {span}, {failures.count} tries: {error.message} ({error.code})")
        self._clock.wait(failures.pause())

    def over(self) -> None:
        """Record a successful poll; after several failed ones, report how long the outage lasted."""
        failures = self._failures
        if failures.count > 1:
            span = span_text(self._clock.monotonic() - failures.since)
            self._say(f"it answers again after {span} and {failures.count} failed tries")
        failures.reset()
