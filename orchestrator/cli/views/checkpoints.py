"""Show the checkpoints of a deployment."""

import click

from orchestrator.app.checkpoints import CheckpointListing, Row
from orchestrator.app.fetch import Fetched
from orchestrator.cli.console import print_json, put, say
from orchestrator.domain.text.amounts import size_text, span_text
from orchestrator.domain.text.clean_text import cut


def show(listing: CheckpointListing) -> None:
    """Print a table of the checkpoints, and the files that no checkpoint contains."""
    if listing.rows:
        _table(listing)
    else:
        click.echo("no checkpoint yet", err=True)
    for one in listing.unclaimed:
        first = cut(one.parts[0].files[0].name, 200) if one.parts[0].files else ""
        more = "" if one.count == 1 else f" and {one.count - 1} more"
        partial = "" if one.complete else ", some may be missing"
        put(
            f"unclaimed, of TPU #{one.incarnation}: {first}{more}, {size_text(one.size)}{partial} ({one.why})"
        )
    if listing.unclaimed:
        click.echo("get them with: tpuctl checkpoints fetch --unclaimed")


def _table(listing: CheckpointListing) -> None:
    # Checkpoints of an earlier release have no format.
    longest = max(len(row.stored.format) for row in listing.rows)
    wide = max(longest, len("format")) if longest else 0
    head = f"{'step':>9}  {'TPU':>4}  {'workers':>7}  {'size':>8}  {'age':>8}"
    put(f"{head}  " + (f"{'format':<{wide}}  " if wide else "") + "state")
    for row in listing.rows:
        one = row.stored
        tpu = "-" if one.incarnation is None else f"#{one.incarnation}"
        age = span_text(max(0.0, listing.now - one.saved_at))
        start = f"{one.step:>9}  {tpu:>4}  {one.workers or '-':>7}"
        kind = f"{one.format or '-':<{wide}}  " if wide else ""
        put(f"{start}  {size_text(one.size):>8}  {age:>8}  {kind}{_state(row)}")
        for fault in row.faults:
            put(f"{'':>11}{cut(fault)}")


def _state(row: Row) -> str:
    if not row.stored.complete:
        return f"not complete: {cut(row.stored.why)}"
    if row.faults:
        return "TORN: not as it was saved"
    words = ["complete"]
    if row.verified is not None:
        words.append("verified" if row.verified else "read whole, no sha256 was noted")
    if row.resumes:
        words.append("a start would resume here")
    return ", ".join(words)


def show_fetched(done: Fetched, *, as_json: bool) -> None:
    """Print what was downloaded to which place, and whether each file is verified."""
    parcel = done.parcel
    if as_json:
        body = {"name": done.name, done.kind: done.number, "folder": str(done.folder), "bytes": parcel.size}
        print_json("fetch", {**body, "files": len(parcel.files), "verified": parcel.checked})
        return
    how = "each file has the sha256 it was saved with" if parcel.checked else "no sha256 was noted"
    say(f"{parcel.what} is in {done.folder}: {how}", style="green")
