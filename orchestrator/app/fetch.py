"""Download a checkpoint, or files that no checkpoint contains, to this computer."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.deployment.earlier_costs import naming_deletion, open_named
from orchestrator.app.deployment.session import Session
from orchestrator.domain.text.amounts import size_text
from orchestrator.engine.bucket import uncommitted
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.fetch import Download, check_folder, download_of, fetch, newest
from orchestrator.errors import NotFoundError
from orchestrator.planning.uncommitted import FETCH


@dataclass(frozen=True)
class WantedFiles:
    """
    What to download: the checkpoint of a *step* or, with *uncommitted*, the files of an *incarnation*.

    None means the newest.
    """

    step: int | None = None
    uncommitted: bool = False
    incarnation: int | None = None


@dataclass(frozen=True)
class Fetched:
    """What was downloaded to which folder; *number* is the step or the incarnation, by *kind*."""

    name: str
    kind: str
    number: int
    folder: Path
    download: Download


def fetch_files(
    choice: Choice, name: str | None, wanted: WantedFiles, output: Path | None, reporter: Reporter
) -> Fetched:
    """Download what is *wanted* to a new folder, by default named after it; continue an interrupted download."""
    session = open_named(choice, name, reporter, "fetch")
    with reporter, naming_deletion(session, "fetch"):
        # Before the folder is created, so that a wrong --step leaves nothing behind.
        find = _uncommitted if wanted.uncommitted else _checkpoint
        number, download = find(session, wanted)
    kind = "uncommitted" if wanted.uncommitted else "step"
    folder = output or Path(f"{session.spec.name}-{kind}-{number}")
    # Before "copying" is said: `fetch` refuses such a folder too.
    check_folder(folder, download)
    files, done = len(download.files), 0

    def report(path: str) -> None:
        nonlocal done
        done += 1
        reporter.now(f"{done} of {files} files: {path}")

    reporter.say(
        f"copying {download.what}: {files} file{'' if files == 1 else 's'}, {size_text(download.size)}"
    )
    with leaving(f"what was copied stays beside {folder}", "run the same command again to go on"), reporter:
        fetch(session.cloud.store, download, folder, report)
    return Fetched(session.spec.name, kind, number, folder, download)


def _checkpoint(session: Session, wanted: WantedFiles) -> tuple[int, Download]:
    store = session.cloud.store
    found = read_checkpoints(store, session.spec.job.checkpoint)
    if not any(one.complete for one in found):
        for saved in uncommitted.read_uncommitted(store)[:1]:
            files = f"{saved.count} uncommitted file{'' if saved.count == 1 else 's'}"
            raise NotFoundError(
                f"there is no complete checkpoint, but {files} ({size_text(saved.size)}) of TPU "
                f"#{saved.incarnation}",
                hint=f"run: {FETCH}", changed="nothing was written",
            )  # fmt: skip
    one = newest(found, wanted.step)
    return one.step, download_of(one)


def _uncommitted(session: Session, wanted: WantedFiles) -> tuple[int, Download]:
    store = session.cloud.store
    one = uncommitted.chosen(uncommitted.read_uncommitted(store), wanted.incarnation)
    if not one.complete:
        session.reporter.say("not everything reached the bucket in time; this is what did", style="warning")
    return one.incarnation, uncommitted.download_of(store, one)
