"""Deployments of this computer whose time to live is over while nobody watched: their machines are taken away."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.known import billed
from orchestrator.app.quick import keep_mark
from orchestrator.app.reporter import Reporter, Style
from orchestrator.app.same_place import store_account
from orchestrator.app.session import Session
from orchestrator.app.state_folders import SPEC_FILE, state_folder
from orchestrator.config.adapter import dump, restore
from orchestrator.domain.checksum import verified, with_checksum
from orchestrator.domain.events import Event
from orchestrator.domain.observation import Unknown
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.atomic_files import disk_trouble, write_atomically
from orchestrator.engine.observe import FAULTS, as_error
from orchestrator.engine.record_format import decode
from orchestrator.errors import LeaseHeldError, TpuctlError

# Most commands look for expired deployments, and hardly ever find one.
if TYPE_CHECKING:
    from orchestrator.engine.reconcile import Pass


def remember(session: Session) -> None:
    """Store the spec of a deployment that is coming up, with a checksum: a changed time to live must not end it."""
    store_account(session.folder, session.choice.cloud)
    # The project as it is now: the login's may be another one when the ttl is over.
    spec = replace(session.spec, project=session.project)
    write_atomically(session.folder / SPEC_FILE, stored_spec(spec))
    # With --set the deployment is not what the file says, so the file's mark would stand for something else.
    if not session.choice.settings:
        keep_mark(session.choice.cloud, session.spec.project, session.path, session.folder)


def stored_spec(spec: Spec) -> bytes:
    """Return the bytes of a stored spec."""
    return json.dumps(with_checksum(dump(spec)), indent=1, sort_keys=True).encode()


def sweep_expired(session: Session) -> None:
    """
    Ask for the end of every other deployment of this computer whose ttl is over, one pass each.

    Only what its record and its labels name is touched, data stays, and one that somebody holds the lease
    of is left to them. What fails here is said and stops nothing: the next command tries again.
    """
    say = session.reporter.say
    # By this computer's clock and without any call: it runs before most commands, each of which waits for it.
    for spec in _expired(state_folder(session.choice.cloud), session.clock.now(), say):
        if (spec.project, spec.name) == (session.project, session.spec.name):
            continue
        say(f"{spec.name}: its time to live of {spec.watch.ttl} is over; its machines are deleted now")
        try:
            other = Session(session.choice, Aside(session.reporter), spec)
            # Only with its lease: its own watch, here or on another computer, ends it better than we do.
            with other.holding_lease("expire"):
                if not _over(spec, other.records.current, session.clock.now()):
                    # Another computer, or a `down` that was killed: a pass would begin it anew.
                    say("  nothing to end: the bucket's record says that it has ended, or started again")
                    continue
                doubts = _doubts(_one_try(other))
            for why in doubts:
                say(f"  not now: {why}")
        except LeaseHeldError as held:
            say(f"  left to its holder: {held.message}")
        except FAULTS as fault:
            # A fault of ours too: the command that was typed is about another deployment.
            say(f"  not now: {as_error(fault).message}")


class Aside(Reporter):
    """Tell of another deployment than the one that the command is about."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def __call__(self, event: Event) -> None:
        """Tell an event as one line."""
        self.say(event.text)

    def say(self, text: str, *, style: Style = "") -> None:
        """Tell one line, below the one that names the deployment."""
        self._reporter.say(f"  {text}", style=style)


def _one_try(session: Session) -> "Pass":
    """Make one pass. One that breaks off is not made again: the command that was typed has work of its own."""
    from orchestrator.engine.endings import raise_bucket_gone
    from orchestrator.engine.reconcile import Reconciler

    try:
        result = Reconciler(session.deployment).one_pass()
    except OSError as error:
        trouble = disk_trouble(error)
        if trouble is None:
            raise
        raise trouble from error
    raise_bucket_gone(result, session.records.current)
    return result


def _doubts(result: "Pass") -> list[str]:
    """Say what kept this pass from ending the deployment: what it could not see, and what was refused."""
    sights = (result.world.nodes, result.world.vm)
    unseen = [sight.why for sight in sights if isinstance(sight, Unknown)]
    return [*unseen, *(failure.error.message for failure in result.failures)]


def _expired(folder: Path, now: float, say: Callable[[str], None]) -> Iterator[Spec]:
    """Yield the specs of deployments whose ttl is over and whose record knows of something that is billed."""
    for path in sorted(folder.glob(f"*/*/{SPEC_FILE}")):
        try:
            spec = restore(verified(path.read_bytes()))
            record = decode((path.parent / "record.json").read_bytes(), spec.name)
        except OSError:
            continue  # It has come no further than its spec, or is being taken away.
        except (ValueError, TypeError, TpuctlError):
            # Not ours to judge, but what nobody ends goes on costing.
            say(
                f"{path.parent.name}: what is kept of it cannot be read, so this computer does not end it when its "
                "time to live is over; run tpuctl up or tpuctl down with its file"
            )
            continue
        if billed(record) and _over(spec, record, now):
            yield spec


def _over(spec: Spec, record: Record, now: float) -> bool:
    """Say whether the time to live is over; a deployment that has ended has none."""
    return record.started_at > 0 and now - record.started_at >= spec.watch.ttl
