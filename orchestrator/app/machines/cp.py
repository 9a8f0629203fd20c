"""Copy a file or a folder between this computer and machines."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.workers import existing_workers, the_vm, worker_hosts
from orchestrator.domain.remote import Host
from orchestrator.domain.text.amounts import size_text
from orchestrator.errors import RemoteError, UsageError
from orchestrator.ssh.transfer.copy import FOLDER, MISSING, NEW_FOLDER, THERE, Hints, fetch, send
from orchestrator.ssh.transfer.tree import OnProgress, TreeCopied, fetch_tree, send_tree

_PLACE = re.compile(r"(?P<machine>w\d+|vm)?:(?P<path>.*)", re.DOTALL)
UNTOUCHED = "nothing was copied"
NAME = "name an existing one"


@dataclass(frozen=True)
class CopyOptions:
    """
    What to copy and where; a path on a machine starts with `:`, `w0:` or `vm:`.

    *worker* applies to a path without a machine: a number, None for all workers. *tree* copies a folder.
    """

    source: str
    target: str
    worker: int | None = 0
    on_vm: bool = False
    tree: bool = False


@dataclass(frozen=True)
class Copied:
    """The copy to or from one machine: the paths, or the error."""

    machine: str
    source: str
    target: str
    what: TreeCopied = field(default_factory=TreeCopied)
    error: RemoteError | None = None


def copy(choice: Choice, options: CopyOptions, reporter: Reporter) -> list[Copied]:
    """
    Copy, and return the result for each machine; with several, one failure does not stop the others.

    Raise UsageError, the RemoteError of a single machine, and OSError.
    """
    there, back = _PLACE.fullmatch(options.source), _PLACE.fullmatch(options.target)
    place = there or back
    if place is None or (there and back):
        raise UsageError(
            "one of the two paths must be on a machine: begin it with :, w1: or vm:",
            hint="for example: tpuctl cp :run.log .", changed=UNTOUCHED, code="TPU-101",
        )  # fmt: skip
    here = Path(options.target if there else options.source)
    if back:
        _refuse_unreadable(here, tree=options.tree)
    session = Session(choice, reporter)
    hosts = _hosts(session, options, place["machine"])
    several = options.worker is None and not options.on_vm
    work: Callable[[Host, Path], Copied]
    if back:
        work = lambda host, _: _send(session, options, host, here, place["path"] or ".")  # noqa: E731
    else:
        work = lambda host, into: _fetch(session, options, host, place["path"] or ".", into)  # noqa: E731
    done = []
    with reporter:
        for number, host in enumerate(hosts):
            into = here
            if several and there:
                # A folder for each worker, since their files have the same names.
                into = here / f"w{number}"
                into.mkdir(parents=True, exist_ok=True)
            try:
                done.append(work(host, into))
            except RemoteError as error:
                if not several:
                    raise
                done.append(Copied(host.name, options.source, options.target, error=error))
    return done


def _hosts(session: Session, options: CopyOptions, named: str | None) -> list[Host]:
    if named and (options.on_vm or options.worker != 0):
        raise UsageError(
            f"{named}: names the machine already", hint="leave out --worker and --vm", changed=UNTOUCHED,
            code="TPU-101",
        )  # fmt: skip
    if named == "vm" or options.on_vm:
        return [the_vm(session)]
    hosts = worker_hosts(session)
    number = int(named[1:]) if named else options.worker
    if number is None:
        return hosts
    if not 0 <= number < len(hosts):
        raise UsageError(
            f"worker {number}: {existing_workers(len(hosts))}", hint="see: tpuctl status",
            changed=UNTOUCHED, code="TPU-132",
        )  # fmt: skip
    return [hosts[number]]


def _refuse_unreadable(here: Path, *, tree: bool) -> None:
    if tree and not here.is_dir():
        text, hint = (
            (f"{here} is not a folder", "leave out -r") if here.exists() else (f"{here} does not exist", NAME)
        )
        raise UsageError(text, hint=hint, changed=UNTOUCHED, code="TPU-101")
    if not tree and not here.is_file():
        text, hint = f"{here} does not exist", NAME
        if here.is_dir():
            text, hint = f"{here} is a folder", "for a folder: tpuctl cp -r"
        elif here.exists():
            text, hint = f"{here} is not a file", NAME
        raise UsageError(text, hint=hint, changed=UNTOUCHED, code="TPU-101")


def _send(session: Session, options: CopyOptions, host: Host, here: Path, path: str) -> Copied:
    connection, root = session.ssh.connect(host), session.ssh_settings.root
    if options.tree:
        done = send_tree(connection, here, path, root, _progress(session, host), hints_of(options))
    else:
        send(connection, here, path, root, hints_of(options))
        done = TreeCopied(1, here.stat().st_size)
    return Copied(host.name, options.source, options.target, done)


def _fetch(session: Session, options: CopyOptions, host: Host, path: str, into: Path) -> Copied:
    connection, root = session.ssh.connect(host), session.ssh_settings.root
    target = into / PurePosixPath(path).name if into.is_dir() else into
    if not options.tree:
        fetch(connection, path, target, root, hints_of(options))
        return Copied(host.name, options.source, str(target), TreeCopied(1, target.stat().st_size))
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists already", hint=NEW_FOLDER, changed=UNTOUCHED, code="TPU-101")
    done = fetch_tree(connection, path, target, root, _progress(session, host), hints_of(options))
    return Copied(host.name, options.source, str(target), done)


def hints_of(options: CopyOptions) -> Hints:
    """Return the next step for each refusal of a machine, with the words that were typed."""
    place = _PLACE.fullmatch(options.source) or _PLACE.fullmatch(options.target)
    named = (place["machine"] if place else None) or ""
    number = named[1:] if named.startswith("w") else "all" if options.worker is None else str(options.worker)
    worker = "" if number == "0" else f"--worker {number} "
    there = "--vm " if named == "vm" or options.on_vm else worker
    machine = "--vm " if options.on_vm else "" if named or not worker else worker
    return {
        MISSING: f"see what is there: tpuctl exec {there}-- ls",
        THERE: NEW_FOLDER,
        FOLDER: f"tpuctl cp -r {machine}{options.source} {options.target}",
    }


def _progress(session: Session, host: Host) -> OnProgress:
    """Return a progress callback: a live line on a terminal, elsewhere one line every 30 s."""
    said_at = session.clock.now()

    def report(size: int, name: str) -> None:
        nonlocal said_at
        text = f"{host.name}: {size_text(size)} copied, now {name}"
        session.reporter.now(text)
        if session.clock.now() - said_at >= 30:
            said_at = session.clock.now()
            session.reporter.say(text)

    return report
