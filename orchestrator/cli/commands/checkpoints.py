"""tpuctl checkpoints: what is saved in the bucket, and what the next start would resume from."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options
from orchestrator.domain.amounts import size_text, span_text
from orchestrator.domain.clean_text import cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.domain.ports import Store
    from orchestrator.engine.checkpoints import StoredCheckpoint
    from orchestrator.engine.unclaimed import UnclaimedFiles


@click.command("checkpoints")
@deployment_options
@click.option("--verify", is_flag=True, help="Read every byte of the complete ones and check their sha256.")
def command(choice: Choice, verify: bool) -> None:
    """
    Show the checkpoints in the bucket: complete or not and why, and which one would be resumed.

    Changes nothing. With --verify it leaves with status 1 when a complete one is not as it was saved.
    """
    from orchestrator.app.session import Session
    from orchestrator.cli.console import print_json
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.engine.checkpoints import read_checkpoints
    from orchestrator.engine.unclaimed import read_unclaimed
    from orchestrator.errors import NotFoundError

    printer = EventPrinter()
    session = Session(choice, printer)
    try:
        with printer:
            found = read_checkpoints(session.cloud.store, session.spec.job.checkpoint)
    except NotFoundError:
        found = []
    kept = read_unclaimed(session.cloud.store)
    faults = dict(_verified(session.cloud.store, found)) if verify else {}
    rows = list(_rows(found, faults, verify=verify))
    if choice.as_json:
        body = {"name": session.spec.name, "checkpoints": rows, "unclaimed": [one.as_dict() for one in kept]}
        print_json("checkpoints", body)
    else:
        _show(rows, session.clock.now())
        _show_unclaimed(kept)
    if any(faults.values()):
        raise click.exceptions.Exit(1)


def _verified(store: "Store", found: "list[StoredCheckpoint]") -> "Iterator[tuple[int, list[str]]]":
    """Yield the faults of each complete checkpoint by its place in the list, and say how far it is."""
    from orchestrator.cli.console import say
    from orchestrator.engine.checkpoints import faults_of

    whole = [(place, one) for place, one in enumerate(found) if one.complete]
    for number, (place, one) in enumerate(whole, 1):
        say(f"{number} of {len(whole)}: reading step {one.step}, {size_text(one.size)}")
        yield place, faults_of(store, one)


def _rows(
    found: "list[StoredCheckpoint]", faults: dict[int, list[str]], *, verify: bool
) -> "Iterator[dict[str, Any]]":
    resume = next((place for place, one in enumerate(found) if one.complete and not faults.get(place)), None)
    for place, one in enumerate(found):
        body = asdict(one)
        checked = [digest for _, digest in body.pop("objects") if digest]
        wrong = faults.get(place, [])
        verified = bool(checked) and not wrong if verify and one.complete else None
        yield {**body, "resumes": place == resume, "verified": verified, "faults": wrong}


def _show(rows: list[dict[str, Any]], now: float) -> None:
    if not rows:
        click.echo("no checkpoint yet", err=True)
        return
    head = f"{'step':>9}  {'inc':>3}  {'workers':>7}  {'size':>8}  {'age':>8}"
    wide = max((len(row["format"]) for row in rows), default=0)
    # Checkpoints of an earlier release name no format.
    wide = max(wide, len("format")) if wide else 0
    put(f"{head}  " + (f"{'format':<{wide}}  " if wide else "") + "state")
    for row in rows:
        incarnation = "-" if row["incarnation"] is None else row["incarnation"]
        age = span_text(max(0.0, now - row["saved_at"]))
        start = f"{row['step']:>9}  {incarnation:>3}  {row['workers'] or '-':>7}"
        put(f"{start}  {size_text(row['size']):>8}  {age:>8}  {_format(row, wide)}{_state(row)}")
        for fault in row["faults"]:
            put(f"{'':>11}{cut(fault)}")


def _show_unclaimed(kept: "list[UnclaimedFiles]") -> None:
    """Name the files that no checkpoint contains, and how to get them."""
    for one in kept:
        first = cut(one.parts[0].files[0].name, 200) if one.parts[0].files else ""
        more = "" if one.count == 1 else f" and {one.count - 1} more"
        partial = "" if one.complete else ", some may be missing"
        put(
            f"unclaimed, incarnation {one.incarnation}: {first}{more}, {size_text(one.size)}{partial} "
            f"({one.why})"
        )
    if kept:
        click.echo("get them with: tpuctl fetch --unclaimed")


def _format(row: dict[str, Any], wide: int) -> str:
    return f"{row['format'] or '-':<{wide}}  " if wide else ""


def _state(row: dict[str, Any]) -> str:
    if not row["complete"]:
        return f"not complete: {cut(row['why'])}"
    if row["faults"]:
        return "TORN: not as it was saved"
    words = ["complete"]
    if row["verified"] is not None:
        words.append("verified" if row["verified"] else "read whole, no sha256 was noted")
    if row["resumes"]:
        words.append("the next start resumes here")
    return ", ".join(words)
