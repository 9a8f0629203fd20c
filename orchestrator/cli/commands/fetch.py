"""tpuctl fetch: copy a checkpoint, or unclaimed files, to this computer."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options, name_argument, output_option

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.engine.checkpoints import StoredCheckpoint
    from orchestrator.engine.fetch import Parcel


@click.command("fetch")
@deployment_options
@click.option("--step", type=click.IntRange(min=0), help="This step. Default: the newest complete one.")
@click.option("--unclaimed", is_flag=True, help="What the job saved and no checkpoint contains.")
@click.option(
    "--incarnation", type=click.IntRange(min=1), help="With --unclaimed: of this one, not the newest."
)
@output_option("NAME-step-N or NAME-unclaimed-N")
@name_argument
def command(
    choice: Choice, step: int | None,
    unclaimed: bool, incarnation: int | None, output: Path | None, name: str | None,
) -> None:  # fmt: skip
    """
    Copy the newest complete checkpoint, the model, from the bucket to a new folder of this computer.

    It works while the job runs and after `tpuctl down`. Each file is held against the sha256 that was noted
    when it was saved, where one was; the folder appears when all are right. After an interrupt it goes on.
    With --unclaimed it copies files that the job saved and that no checkpoint contains: tpuctl keeps them
    before it lets a machine go. NAME is a deployment that this computer has brought up; without it, the one
    of the deployment file.
    """
    from orchestrator.app.known import open_session
    from orchestrator.app.leaving import leaving
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.domain.amounts import size_text
    from orchestrator.engine.fetch import fetch

    _check(step, incarnation, unclaimed=unclaimed)
    printer = EventPrinter()
    session = open_session(choice, name, printer)
    with printer:
        number, parcel = _unclaimed(session, incarnation) if unclaimed else _checkpoint(session, step)
    kind = "unclaimed" if unclaimed else "step"
    folder = output or Path(f"{session.spec.name}-{kind}-{number}")
    files, done = len(parcel.files), 0

    def tell(place: str) -> None:
        nonlocal done
        done += 1
        printer.now(f"{done} of {files} files: {place}")

    say(f"copying {parcel.what}: {files} file{'' if files == 1 else 's'}, {size_text(parcel.size)}")
    with leaving(f"what has come is kept beside {folder}", "the same words again go on"), printer:
        fetch(session.cloud.store, parcel, folder, tell)
    if choice.as_json:
        body = {"name": session.spec.name, kind: number, "folder": str(folder), "bytes": parcel.size}
        print_json("fetch", {**body, "files": files, "verified": parcel.checked})
        return
    how = "each file has the sha256 it was saved with" if parcel.checked else "no sha256 was noted"
    say(f"{parcel.what} is in {folder}: {how}", style="green")


def _check(step: int | None, incarnation: int | None, *, unclaimed: bool) -> None:
    from orchestrator.errors import UsageError

    if unclaimed and step is not None:
        raise UsageError("--step is for checkpoints", hint="leave out --step, or --unclaimed")
    if incarnation is not None and not unclaimed:
        raise UsageError("--incarnation goes with --unclaimed", hint="a checkpoint is chosen with --step N")


def _checkpoint(session: "Session", step: int | None) -> "tuple[int, Parcel]":
    from orchestrator.engine.checkpoints import read_checkpoints
    from orchestrator.engine.fetch import newest, parcel_of

    found = read_checkpoints(session.cloud.store, session.spec.job.checkpoint)
    if not any(one.complete for one in found):
        _offer_unclaimed(session)
    one: StoredCheckpoint = newest(found, step)
    return one.step, parcel_of(one)


def _offer_unclaimed(session: "Session") -> None:
    """Raise NotFoundError that names the files that are there, when there are some."""
    from orchestrator.domain.amounts import size_text
    from orchestrator.engine.unclaimed import read_unclaimed
    from orchestrator.errors import NotFoundError
    from orchestrator.planning.unclaimed import FETCH

    for kept in read_unclaimed(session.cloud.store)[:1]:
        files = f"{kept.count} unclaimed file{'' if kept.count == 1 else 's'}"
        raise NotFoundError(
            f"there is no complete checkpoint, but {files} ({size_text(kept.size)}) of incarnation "
            f"{kept.incarnation}",
            hint=f"run: {FETCH}", unchanged="nothing was written",
        )  # fmt: skip


def _unclaimed(session: "Session", incarnation: int | None) -> "tuple[int, Parcel]":
    from orchestrator.cli.console import say
    from orchestrator.engine.unclaimed import chosen, parcel_of, read_unclaimed

    one = chosen(read_unclaimed(session.cloud.store), incarnation)
    if not one.complete:
        say("not everything came to the bucket in time; this is what did", style="yellow")
    return one.incarnation, parcel_of(session.cloud.store, one)
