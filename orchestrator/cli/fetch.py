"""
tpuctl fetch: copy a checkpoint to this computer.
"""

from pathlib import Path

import click

from orchestrator.cli.options import deployment_options, name_argument, output_option


@click.command("fetch")
@deployment_options
@click.option("--step", type=click.IntRange(min=0), help="This step. Default: the newest complete one.")
@output_option("NAME-step-N")
@name_argument
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, step: int | None,
    output: Path | None, name: str | None,
) -> None:  # fmt: skip
    """
    Copy the newest complete checkpoint, the model, from the bucket to a new folder of this computer.

    It works while the job runs and after `tpuctl down`. Each file is held against the sha256 that was noted
    when it was saved, where one was; the folder appears when all are right. After an interrupt it goes on.
    NAME is a deployment that this computer has brought up; without it, the one of the deployment file.
    """
    from orchestrator.cli.checkpoints import size_text
    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.known import open_session
    from orchestrator.cli.leaving import leaving
    from orchestrator.cli.output import print_json, say
    from orchestrator.cli.wiring import Choice
    from orchestrator.engine.checkpoints import read_checkpoints
    from orchestrator.engine.fetch import fetch, newest, places_of

    printer = EventPrinter()
    session = open_session(Choice(file, settings, cloud, as_json), name, printer)
    with printer:
        one = newest(read_checkpoints(session.cloud.store, session.spec.job.checkpoint), step)
    folder = output or Path(f"{session.spec.name}-step-{one.step}")
    files, done = len(places_of(one)), 0

    def tell(place: str) -> None:
        nonlocal done
        done += 1
        printer.now(f"{done} of {files} files: {place}")

    say(f"copying step {one.step}: {files} file{'' if files == 1 else 's'}, {size_text(one.size)}")
    with leaving(f"what has come is kept beside {folder}", "the same words again go on"), printer:
        fetch(session.cloud.store, one, folder, tell)
    checked = bool(one.objects) and all(digest for _, digest in one.objects)
    if as_json:
        body = {"name": session.spec.name, "step": one.step, "folder": str(folder), "bytes": one.size}
        print_json("fetch", {**body, "files": files, "verified": checked})
        return
    how = "each file has the sha256 it was saved with" if checked else "no sha256 was noted"
    say(f"step {one.step} is in {folder}: {how}", style="green")
