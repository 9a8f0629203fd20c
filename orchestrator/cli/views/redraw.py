"""Show something again and again: drawn anew on a terminal, elsewhere as lines when there is news."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from orchestrator.app.status import newest
from orchestrator.cli.commands.status import EVERY, shown
from orchestrator.cli.console import SCHEMA_VERSION, put
from orchestrator.cli.views.status import checkpoint_text, job_text
from orchestrator.clock import Clock
from orchestrator.domain.amounts import usd_text
from orchestrator.domain.clean_text import clean
from orchestrator.errors import Retry, TpuctlError

if TYPE_CHECKING:
    from orchestrator.app.choice import Choice
    from orchestrator.app.session import Session

Look = Callable[[], "tuple[Any, bool]"]
"""Returns what was seen, and whether it is over."""


def redraws() -> bool:
    """Say whether stdout is a terminal that can draw over what it shows."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


def follow(session: "Session", *, wide: bool, fresh: bool) -> None:
    """Show one deployment until its end."""

    def look() -> tuple[Any, bool]:
        if "records" in session.__dict__:
            session.records.load()
        body = newest(session, fresh=fresh)
        return body, bool(body["outcome"]) and not body["next"]

    def draw(body: Any) -> str:
        return "\n".join(shown(body, session.choice.cloud, wide=wide))

    repeat(session.choice, session.clock, "status", look, draw, lambda body: [news_line(body)])


def repeat(
    choice: "Choice", clock: Clock, kind: str, look: Look, draw: Callable[[Any], str],
    news: Callable[[Any], list[str]],
) -> None:  # fmt: skip
    """Look until it is over: *draw* returns what a terminal shows, *news* the lines of a log."""
    if choice.as_json:
        _stream(clock, look, lambda body: _print_json(kind, body))
    elif redraws():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(highlight=False), auto_refresh=False, screen=False) as live:
            _stream(clock, look, lambda body: live.update(Text(clean(draw(body))), refresh=True))
    else:
        said: list[str] = []

        def tell(body: Any) -> None:
            for line in news(body):
                if line not in said:
                    put(f"{time.strftime('%H:%M:%S')}  {line}")
            said[:] = news(body)

        _stream(clock, look, tell)


def _stream(clock: Clock, look: Look, show: Callable[[Any], None]) -> None:
    """Look and show every few seconds; a cloud that does not answer for a moment is asked again."""
    while True:
        over = False
        try:
            found, over = look()
            show(found)
        except TpuctlError as error:
            if error.retry is not Retry.TRANSIENT:
                raise
            put(f"{error.message} ({error.code}); trying again", err=True)
        if over:
            return
        clock.wait(EVERY)


def _print_json(kind: str, body: Any) -> None:
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **body}))


def news_line(body: dict[str, Any]) -> str:
    """Return the status on one line, without ages, so that it changes with the deployment only."""
    tpus = [f"{row['name']} {row['state']}" for row in body["resources"] if row["kind"] == "TPU"]
    saved = checkpoint_text(body).partition(",")[0]
    count = body["preemptions"]
    parts = [
        f"{body['name']}: {body['outcome'] or ', '.join(tpus)}",
        job_text(body),
        f"checkpoint {saved}" if saved else "",
        f"{count} preemption{'' if count == 1 else 's'}",
        usd_text(body["cost_usd"]),
        f"next: {body['next'][0]}" if body["next"] else "",
    ]
    return ", ".join(part for part in parts if part)
