"""tpuctl cost: what the deployment has cost, and for what."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options, name_argument

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.pricing.spending import Kept, Spending


@click.command("cost")
@deployment_options
@name_argument
def command(choice: Choice, name: str | None) -> None:
    """
    Show what the deployment has cost: by resource, zone, day (UTC) and use, and what preemptions took.

    NAME is a deployment that this computer has brought up; without it, the one of the deployment file.
    An estimate from the price tables, not a bill. Of storage it counts what the bucket holds now, since it
    was written; deleted files, requests and traffic are not in it, nor an adopted bucket.
    """
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.known import open_session
    from orchestrator.cli.console import print_json
    from orchestrator.cli.views import cost
    from orchestrator.cli.views.event_lines import EventPrinter

    printer = EventPrinter()
    session = open_session(choice, name, printer)
    sweep_expired(session)
    with printer:
        found, preemptions = _spent(session)
    if choice.as_json:
        print_json("cost", {"name": session.spec.name, "preemptions": preemptions, **_body(found)})
    else:
        cost.show(session.spec.name, found, preemptions, rehearsed=choice.cloud == "local")


def _spent(session: "Session") -> "tuple[Spending, int]":
    from orchestrator.app.glance import glance
    from orchestrator.domain.observation import Present
    from orchestrator.engine.heartbeats import read_heartbeats
    from orchestrator.pricing.spending import spending

    looked = glance(session)
    seen = read_heartbeats(session.cloud.store, None)
    beats = seen.value if isinstance(seen, Present) else ()
    record = looked.record
    ours = isinstance(looked.world.bucket, Present) and not session.spec.bucket.adopt
    kept = _kept(session) if ours else ()
    found = spending(session.spec, session.catalog, record, beats, looked.world.seen_at, kept)
    return found, record.node.preemptions


def _kept(session: "Session") -> "tuple[Kept, ...]":
    """List what the bucket holds now; nothing when it cannot be listed, which is said."""
    from orchestrator.cli.console import say
    from orchestrator.errors import TpuctlError
    from orchestrator.pricing.spending import Kept

    try:
        return tuple(Kept(one.size / 2**30, one.updated) for one in session.cloud.store.list(""))
    except TpuctlError as error:
        say(f"storage is left out: {error.message}")
        return ()


def _body(found: "Spending") -> dict[str, Any]:
    """Return the spending as `--json` prints it."""
    from dataclasses import asdict

    body = asdict(found)
    prices = body.pop("prices")
    return {
        **body,
        "wasted_usd": found.wasted_usd,
        "price_dates": dict(prices["dates"]),
        "hourly": [line.as_dict() for line in found.prices.lines],
    }
