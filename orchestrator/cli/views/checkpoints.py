"""Show the checkpoints of a deployment."""

from collections import Counter
from collections.abc import Sequence

import click

from orchestrator.app.checkpoints import CheckpointListing, Row
from orchestrator.app.fetch import Fetched
from orchestrator.cli.console import print_json, put, say, talk
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.text.amounts import size_text, span_text
from orchestrator.domain.text.clean_text import cut
from orchestrator.domain.text.format_name import format_name

HEADS = ("step", "TPU", "workers", "size", "commit age", "format")


def show(listing: CheckpointListing, *, as_json: bool) -> None:
    """Print a table of the checkpoints, and the files that no checkpoint contains."""
    if as_json:
        print_json("checkpoints", listing.as_dict())
        return
    if listing.rows:
        _table(listing)
        _say_retention(listing)
    else:
        say(f"no checkpoint: {listing.deleted}" if listing.deleted else "no checkpoint yet")
    for one in listing.uncommitted:
        first = cut(one.manifests[0].files[0].name, 200) if one.manifests[0].files else ""
        more = "" if one.count == 1 else f" and {one.count - 1} more"
        partial = "" if one.complete else ", some may be missing"
        put(
            f"uncommitted, of TPU #{one.incarnation}: {first}{more}, {size_text(one.size)}{partial}"
            f" ({one.moment_text})"
        )
    if listing.uncommitted:
        click.echo("get them with: tpuctl checkpoints fetch --uncommitted")


def _say_retention(listing: CheckpointListing) -> None:
    """Say that older ones are deleted, once there are as many steps as are kept."""
    whole = Counter(row.stored.step for row in listing.rows if row.stored.complete)
    if not 0 < listing.keep <= len(whole):
        return
    # Retention counts steps, by contract/bucket/completeness.py: `disposable`.
    twice = next((step for step, rows in whole.items() if rows > 1), None)
    more = "" if twice is None else f" Several TPUs have saved step {twice}: it counts once."
    # Deleted after a commit: not after the last one before a stop, and not what was set aside meanwhile.
    due = sorted(whole, reverse=True)[listing.keep :]
    older = f" The next save deletes {_steps(due)}." if due else ""
    if due and listing.done:
        older = f" The job ended before a save deleted {_steps(due)}."
    talk(
        f"The checkpoints of the newest {listing.keep} steps are kept (job.checkpoint.keep); each save deletes"
        f" older ones.{older}{more} Saves that come faster than the upload are skipped."
    )


def _steps(numbers: Sequence[int]) -> str:
    return f"step {numbers[0]}" if len(numbers) == 1 else f"the {len(numbers)} oldest"


def _table(listing: CheckpointListing) -> None:
    rows = [HEADS, *(_cells(row.stored, listing.now) for row in listing.rows)]
    # As wide as their content, so that a line fits a terminal. Checkpoints of an earlier release have no format.
    widths = [max(len(cells[at]) for cells in rows) for at in range(len(HEADS))]
    widths[-1] = widths[-1] if any(row.stored.format for row in listing.rows) else 0
    states = ["state", *(_state(row, done=listing.done) for row in listing.rows)]
    damages = [(), *(row.damage for row in listing.rows)]
    for cells, state, found in zip(rows, states, damages, strict=True):
        start = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells[:-1], widths, strict=False))
        put(f"{start}  " + (f"{cells[-1]:<{widths[-1]}}  " if widths[-1] else "") + state)
        for damage in found:
            put(f"{'':>11}{cut(damage)}")


def _cells(one: BucketCheckpoint, now: float) -> tuple[str, ...]:
    tpu = "-" if one.incarnation is None else f"#{one.incarnation}"
    age = span_text(max(0.0, now - one.saved_at))
    return (
        str(one.step),
        tpu,
        str(one.workers or "-"),
        size_text(one.size),
        age,
        format_name(one.format) if one.format else "-",
    )


def _state(row: Row, *, done: bool) -> str:
    if not row.stored.complete:
        return f"not used: {cut(row.stored.message)}"
    if row.damage:
        return "TORN: not as it was saved"
    words = {None: "complete", True: "complete, verified", False: "complete, no sha256 to compare"}
    return words[row.verified] + ((", the model" if done else ", resumes here") if row.resumes else "")


def show_fetched(done: Fetched, *, as_json: bool) -> None:
    """Print what was downloaded to which place, and whether each file is verified."""
    download = done.download
    if as_json:
        number = {"step" if done.kind == "step" else "incarnation": done.number}
        body = {"name": done.name, **number, "folder": str(done.folder), "bytes": download.size}
        print_json("fetch", {**body, "files_count": len(download.files), "verified": download.checked})
        return
    how = (
        "sha256 of every file verified"
        if download.checked
        else "no sha256 was recorded, so none was verified"
    )
    one = len(download.files) == 1 and not download.several
    where = done.folder / download.files[0][2] if one else done.folder
    say(f"{download.what} {download.verb} in {where}: {how}", style="green")
