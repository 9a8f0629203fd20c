"""End deployments of this computer that expired while no watcher ran, by deleting their machines."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.app.context.reporter import Reporter, Style
from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.known import billed
from orchestrator.app.this_computer.quick_status import keep_mark
from orchestrator.app.this_computer.same_project import store_account
from orchestrator.app.this_computer.state_folders import SPEC_FILE, state_folder
from orchestrator.config.adapter import dump, restore
from orchestrator.domain.checksum import verified, with_checksum
from orchestrator.domain.events import Event
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import LeaseHeldError, TpuctlError, disk_error


def remember(session: Session) -> None:
    """Store the spec of a deployment before its creation, with a checksum against edits of its ttl."""
    store_account(session.folder, session.choice.cloud)
    # With the present project, as the login may be of another one when the ttl is over.
    spec = replace(session.spec, project=session.project)
    write_private(session.folder / SPEC_FILE, stored_spec(spec))
    # With --set the deployment differs from the file, so the file's mark would be wrong.
    if not session.choice.settings:
        keep_mark(session.choice.cloud, session.spec.project, session.path, session.folder)


def stored_spec(spec: Spec) -> bytes:
    """Return the stored form of a spec."""
    return json.dumps(with_checksum(dump(spec)), indent=1, sort_keys=True).encode()


def end_expired(session: Session) -> None:
    """
    End every other deployment of this computer whose ttl is over, one pass each.

    Only what its record and labels name is touched, and data stays. Deployments whose lease is held are
    skipped. Failures are reported and stop nothing; the next command tries again.
    """
    say = session.reporter.say
    # Local files only, no calls: this runs before most commands and delays each of them.
    for spec in _expired(state_folder(session.choice.cloud), session.clock.now(), say):
        if (spec.project, spec.name) == (session.project, session.spec.name):
            continue
        over = f"its time to live of {spec.watch.ttl} is over"
        say(f"{spec.name}: {over}; what is left of its machines is deleted now")
        try:
            other = Session(session.choice, IndentedReporter(session.reporter), spec)
            # Under its lease: if a watcher holds it, here or elsewhere, that ends the deployment better.
            with other.holding_lease("expire"):
                if not _over(spec, other.records.current, session.clock.now()):
                    # Ended by another computer or by a killed `down`: a pass would create it again.
                    say("  nothing to end: the bucket's record says that it has ended, or started again")
                    continue
                result = _one_try(other)
            if _had_gone(result):
                say(
                    "  nothing was left: a TPU deletes itself, and Google deletes a VM, where the file says so"
                )
            for message in _doubts(result):
                say(f"  not now: {message}")
        except LeaseHeldError as held:
            say(f"  left to its holder: {held.message}")
        except PASS_ERRORS as caught:
            # Whatever fails, even by a bug: the user's command is about another deployment.
            say(f"  not now: {as_error(caught).message}")


class IndentedReporter(Reporter):
    """Reports about another deployment than the command's own, indented below its name."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def __call__(self, event: Event) -> None:
        """Report an event as one line, indented."""
        self.say(event.message)

    def say(self, text: str, *, style: Style = "") -> None:
        """Report one line, indented."""
        self._reporter.say(f"  {text}", style=style)


def _one_try(session: Session) -> Pass:
    """Make one pass, without a retry, since the user's command waits. Raise the error of a broken pass."""
    from orchestrator.engine.outcome_errors import raise_bucket_gone
    from orchestrator.engine.reconcile.reconciler import Reconciler

    try:
        result = Reconciler(session.deployment).one_pass()
    except OSError as error:
        on_disk = disk_error(error)
        if on_disk is None:
            raise
        raise on_disk from error
    raise_bucket_gone(result, session.records.current)
    return result


def _had_gone(result: Pass) -> bool:
    """Return whether the pass has found no machine to end."""
    return isinstance(result.world.vm, Absent) and result.world.nodes == Present(())


def _doubts(result: Pass) -> list[str]:
    """Return what prevented this pass from ending the deployment: unknowns and refusals."""
    observations = (result.world.nodes, result.world.vm)
    unseen = [observed.message for observed in observations if isinstance(observed, Unknown)]
    return [*unseen, *(failure.error.message for failure in result.failures)]


def _expired(folder: Path, now: float, say: Callable[[str], None]) -> Iterator[Spec]:
    """Yield the specs of deployments whose ttl is over and whose record has something billed."""
    for path in sorted(folder.glob(f"*/*/{SPEC_FILE}")):
        try:
            spec = restore(verified(path.read_bytes()))
            record = decode((path.parent / "record.json").read_bytes(), spec.name)
        except OSError:
            continue  # Only its spec exists so far, or it is being deleted.
        except (ValueError, TypeError, TpuctlError):
            # Unreadable, so it cannot be ended here; reported, because it may stay billed.
            say(
                f"{path.parent.name}: what is kept of it cannot be read, so this computer does not end it when its "
                "time to live is over; run `tpuctl up` or `tpuctl down` with its file"
            )
            continue
        if billed(record) and _over(spec, record, now):
            yield spec


def _over(spec: Spec, record: Record, now: float) -> bool:
    """Return whether the ttl is over; False for a deployment that has ended."""
    return record.started_at > 0 and now - record.started_at >= spec.watch.ttl
