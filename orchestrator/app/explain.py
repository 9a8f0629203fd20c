"""Explain why a deployment is in its state, from one observation, the record and the local journal."""

import json
from pathlib import Path

from orchestrator.advice.explain.explain import explain
from orchestrator.advice.explain.explanation import DeploymentFacts, Entry, Explanation
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import last_cost, open_named
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session
from orchestrator.app.status.status import observe_now, state_of, watcher_of
from orchestrator.app.this_computer.holder import process_ended
from orchestrator.engine.publish.published_status import published_here

JOURNAL_BYTES = 64 << 10
"""Bytes that are read from the end of the local journal."""


def explain_deployment(choice: Choice, name: str | None, reporter: Reporter) -> Explanation:
    """Return why the deployment is in its state, and what happens next and when."""
    session = open_named(choice, name, reporter, "explain")
    end_expired(session)
    with reporter:
        return explained(session)


def explained(session: Session) -> Explanation:
    """Observe once and explain the observed state."""
    now = observe_now(session)
    watcher = watcher_of(session, now.world)
    journal = _journal(session.folder / "journal.jsonl")
    cost = last_cost(session, now.record)
    return explain(
        DeploymentFacts(
            session.spec,
            now.world,
            now.record,
            now.plan,
            state_of(session, now, watcher),
            now.usd,
            now.upper_usd,
            watcher,
            journal,
            cost.deleted_text if cost else "",
            unbilled=session.choice.cloud == "local",
            next_pass_at=_next_pass_at(session, now.world.observed_at),
        )
    )


def _next_pass_at(session: Session, now: float) -> float | None:
    """Return when the watcher of this computer makes its next pass, as it has published; None without one."""
    found = published_here(session.folder, now, process_ended)
    if found is None or found.status.next_pass_in_s is None:
        return None
    return now - found.age + found.status.next_pass_in_s


def _journal(path: Path) -> tuple[Entry, ...]:
    """Return the newest changes in the local journal; unreadable lines are skipped."""
    entries: dict[str, Entry] = {}
    for line in _tail(path):
        try:
            body = json.loads(line)
            # The first line of the tail is usually cut, and a kill may have cut the last one.
            key, at = str(body["id"]), float(body["at"])
            if body["part"] == "intent":
                entries[key] = Entry(at, body["kind"], body["verb"], body["name"], body["why"])
            # An outcome whose intent is before the tail has no reason to show.
            elif key in entries:
                was = entries[key]
                entries[key] = Entry(was.at, was.kind, was.verb, was.name, was.message, str(body["outcome"]))
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
