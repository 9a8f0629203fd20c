"""tpuctl explain: why the deployment is in its state."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options, name_argument

if TYPE_CHECKING:
    from orchestrator.advice.explain.values import Entry, Explanation, Seen, Watching
    from orchestrator.app.glance import Glance
    from orchestrator.app.session import Session

JOURNAL_BYTES = 64 << 10
"""How much of the end of the local journal is read."""


@click.command("explain")
@deployment_options
@name_argument
def command(choice: Choice, name: str | None) -> None:
    """
    Say why the deployment is in its state: what was seen, which rule decided, what comes next and when.

    NAME is a deployment that this computer has brought up; without it, the one of the deployment file.
    """
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.known import open_session
    from orchestrator.cli.console import print_json
    from orchestrator.cli.views import explain as explain_view
    from orchestrator.cli.views.event_lines import EventPrinter

    printer = EventPrinter()
    session = open_session(choice, name, printer)
    sweep_expired(session)
    with printer:
        found = explained(session)
    if choice.as_json:
        print_json("explain", found.as_dict())
    else:
        explain_view.show(found)


def explained(session: "Session") -> "Explanation":
    """Look once, and return why the deployment is in the state that was seen."""
    from orchestrator.advice.explain.explain import explain
    from orchestrator.app.glance import glance

    return explain(_seen(session, glance(session)))


def _seen(session: "Session", looked: "Glance") -> "Seen":
    from orchestrator.advice.explain.values import Seen

    watching, journal = _watching(session, looked), _journal(session.folder / "journal.jsonl")
    return Seen(session.spec, looked.world, looked.record, looked.plan, looked.usd, watching, journal)


def _watching(session: "Session", looked: "Glance") -> "Watching | None":
    from orchestrator.advice.explain.values import Watching
    from orchestrator.app.glance import holder_of

    held = holder_of(session, looked.world)
    if held is None:
        return None
    return Watching(held["who"], held["command"], held["renewed_age_s"], held["where"] == "vm")


def _journal(path: Path) -> "tuple[Entry, ...]":
    """Return the newest changes of the local journal; a line that cannot be read is left out."""
    from orchestrator.advice.explain.values import Entry

    entries: dict[str, Entry] = {}
    for line in _tail(path):
        try:
            body = json.loads(line)
            key, at = str(body["id"]), float(body["at"])
            if body["part"] == "intent":
                entries[key] = Entry(at, body["kind"], body["verb"], body["name"], body["why"])
            elif key in entries:
                was = entries[key]
                entries[key] = Entry(was.at, was.kind, was.verb, was.name, was.why, str(body["outcome"]))
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(entries.values())


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - JOURNAL_BYTES))
            return file.read().splitlines()
    except OSError:
        return []
