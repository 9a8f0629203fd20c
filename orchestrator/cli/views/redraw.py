"""Show something repeatedly: redrawn on a terminal, otherwise as lines for changes."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.outage import Outage
from orchestrator.app.status.text import job_text, saved_text
from orchestrator.cli.console import print_json, put, talk
from orchestrator.cli.views.paint import wants_colour
from orchestrator.cli.views.status import fitted
from orchestrator.clock import Clock
from orchestrator.domain.status import DeploymentState, DeploymentStatus
from orchestrator.domain.text.amounts import usd_range_text
from orchestrator.domain.text.clean_text import clean
from orchestrator.errors import Retry, TpuctlError

EVERY = 5.0
"""Seconds between two observations of `--follow`."""
NEWS_EVERY = 300.0
"""Seconds between two lines that report only steps and cost."""
News = Callable[[Any], list[tuple[Any, str]]]
"""Returns lines for a log, each with a key; a changed key prints the line at once."""
Observe = Callable[[], tuple[Any, bool]]
"""Returns the observation, and whether it is the last one."""


def redraws() -> bool:
    """Return whether stdout is a terminal that can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


def follow_status(
    choice: Choice, clock: Clock, newest: Callable[[], DeploymentStatus], *, wide: bool
) -> None:
    """Show the *newest* status of one deployment until it has ended or is deleted."""
    was_up = False

    def observe() -> tuple[Any, bool]:
        nonlocal was_up
        body = newest()
        # The outcome alone is not the end: machines that are still being deleted are billed.
        over = bool(body.outcome) and not body.upcoming
        # A deployment that is down from the start may be brought up while this waits.
        over |= body.state is DeploymentState.DELETED or (was_up and body.state is DeploymentState.DOWN)
        was_up |= body.up
        return (body.as_dict() if choice.as_json else body), over

    def draw(body: Any) -> str:
        lines = fitted(body, unbilled=choice.cloud == "local", wide=wide, colour=wants_colour())
        return "\n".join(lines)

    repeat(choice, clock, "status", observe, draw, lambda body: [(news_key(body), news_line(body))])


def repeat(
    choice: Choice, clock: Clock, kind: str, observe: Observe, draw: Callable[[Any], str],
    news: News,
) -> None:  # fmt: skip
    """Observe until the end: *draw* returns the screen of a terminal, *news* the lines of a log."""
    if choice.as_json:
        _stream(clock, observe, lambda body: print_json(kind, body, one_line=True))
    elif redraws():
        # The first answer takes seconds, in which an empty screen would look like a command that hangs.
        asking = Text("asking the cloud ...")
        with Live(asking, console=Console(highlight=False), auto_refresh=False, screen=False) as live:
            _stream(
                clock,
                observe,
                lambda body: live.update(Text.from_ansi(clean(draw(body), colours=True)), refresh=True),
            )
    else:
        said: dict[Any, tuple[str, float]] = {}

        def report(body: Any) -> None:
            now, before = clock.now(), dict(said)
            said.clear()
            for key, line in news(body):
                text, at = before.get(key, ("", now - NEWS_EVERY))
                if line != text and now - at >= NEWS_EVERY:
                    put(f"{time.strftime('%H:%M:%S')}  {line}")
                    text, at = line, now
                said[key] = (text, at)

        _stream(clock, observe, report)


def _stream(clock: Clock, observe: Observe, show: Callable[[Any], None]) -> None:
    """Observe and show every few seconds; retry while the cloud does not answer."""
    outage = Outage(clock, EVERY, talk)
    while True:
        try:
            found, over = observe()
            show(found)
        except TpuctlError as error:
            # A watch of hours must survive a network that is down for a minute.
            if error.retry is not Retry.TRANSIENT:
                raise
            outage.failed(error)
            continue
        outage.over()
        if over:
            return
        clock.wait(EVERY)


def news_key(status: DeploymentStatus) -> tuple[Any, ...]:
    """Return the part of a status whose change is printed at once: states and phases, not steps and cost."""
    states = tuple((row.kind, row.name, row.state) for row in status.resources)
    phases = tuple(worker.phase for worker in status.workers)
    # Of a change its number: its reason may hold an age, which differs each time without being news.
    waits = tuple((wait.what, wait.message) for wait in status.waits_for) or len(status.next_changes)
    return status.state, states, phases, status.preemptions, waits


def news_line(status: DeploymentStatus) -> str:
    """Return the status on one line, without ages, which change without any event."""
    tpus = [f"{row.name} {row.state}" for row in status.resources if row.kind == "tpu" and row.zone]
    saved = saved_text(status)
    count = status.preemptions
    parts = [
        f"{status.name}: {status.state.phrase}",
        ", ".join(tpus),
        job_text(status),
        f"checkpoint at {saved}" if saved else "",
        f"{count} preemption{'' if count == 1 else 's'}",
        usd_range_text(status.usd, status.upper_usd),
        f"{'waiting' if status.waits_for else 'next'}: {status.upcoming[0].text}" if status.upcoming else "",
    ]
    return ", ".join(part for part in parts if part)
