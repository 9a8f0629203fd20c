"""Watch all deployments that this computer has brought up in one process, which lists each zone once."""

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session, SharedBudget
from orchestrator.app.loop.watch import Paused, Screen, turn
from orchestrator.app.this_computer.known import billed, spec_in
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.clock import SystemClock
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.engine.loop.loop import Passes
from orchestrator.engine.loop.many_loops import ManyLoops, Member, PeriodicTask
from orchestrator.engine.outcome_errors import raise_outcome
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.planning.fleet.deployments import fleet_of

R = TypeVar("R", bound=Reporter)

POLL = 15.0
"""Seconds between two lists of TPUs, the default of watch.poll."""
FRESH = 3.0
"""Seconds for which a list is shared; Google's own may be as old (docs/facts.md 1.3)."""


@dataclass(frozen=True)
class WatchResult:
    """The end of one deployment's watch: an *outcome* or an *error*."""

    name: str
    outcome: Outcome | None = None
    message: str = ""
    error: TpuctlError | None = None


class WatchAll(Generic[R]):
    """
    Watches until all deployments have ended or `stop` is called; later deployments are ignored.

    *only* limits it to these names; those of one fleet share a budget. *periodic* runs beside the passes. *on_vm*
    means that it runs on a VM that it watches itself, whose stop it leaves to the caller.
    """

    def __init__(
        self, choice: Choice, reporter_of: Callable[[str], R], screen_of: Callable[[R, Session], Screen],
        only: Container[str] | None = None, periodic: PeriodicTask | None = None, *, on_vm: bool = False,
    ) -> None:  # fmt: skip
        self._choice, self._reporter_of, self._screen_of = choice, reporter_of, screen_of
        self._only, self._on_vm = only, on_vm
        clock = SystemClock()
        self._lists = ZoneLists(FRESH, clock.monotonic)
        self._together: dict[str, SharedBudget] = {}
        self.ended: list[WatchResult] = []
        members = [Member(path.parent.name, self._passes(path)) for path in self._open()]
        if not members and not self.ended:
            raise UsageError(
                "nothing of this computer is up: there is nothing to watch", hint="run: tpuctl up",
                changed="nothing was changed", code="TPU-130",
            )  # fmt: skip
        self.names = [member.name for member in members]
        self._loops = ManyLoops(clock, POLL, members, self._note, periodic, self._lists.outdate)

    def run(self) -> None:
        """Run passes; afterwards *ended* holds the end of each watch."""
        self._loops.run()

    def stop(self) -> None:
        """Stop after the passes that have started."""
        self._loops.stop.set()

    def follow(self, path: Path) -> None:
        """Add a deployment, whose spec is stored at *path*."""
        self.names.append(path.parent.name)
        self._loops.add(Member(path.parent.name, self._passes(path)))

    def leave(self, name: str) -> None:
        """Stop watching a deployment and release its lease."""
        self._loops.remove(name)
        self.names = [one for one in self.names if one != name]

    @property
    def stopped(self) -> bool:
        """Return whether it was stopped before all had ended."""
        return len({one.name for one in self.ended}.intersection(self.names)) < len(self.names)

    def _open(self) -> list[Path]:
        """Return the stored specs of all deployments that have not ended; report unreadable ones at the end."""
        found = []
        for path in known_files(self._choice.cloud):
            if self._only is not None and path.parent.name not in self._only:
                continue
            if self._on_vm:
                # A VM's copy may be older than an `up` from elsewhere; the bucket decides.
                found.append(path)
                continue
            try:
                record = decode((path.parent / "record.json").read_bytes(), path.parent.name)
            except FileNotFoundError:
                continue  # Only its spec exists so far, or it is being deleted.
            except OSError as error:
                hint = f"it is not watched; correct this, then run: tpuctl watch {path.parent.name}"
                unread = UsageError(f"its record: {error}", hint=hint, changed="it was not touched")
                self.ended.append(WatchResult(path.parent.name, error=unread))
            except TpuctlError:
                found.append(path)  # The bucket's copy may be readable.
            else:
                found += [path] if record.job.bundle and (billed(record) or not record.outcome) else []
        return found

    def _passes(self, path: Path) -> Passes:
        """Run the passes of one deployment until its end."""
        reporter, stopped = self._reporter_of(path.parent.name), threading.Event()
        after: Paused | None = None
        while True:
            # Read again after a `push`, which may have changed the deployment file.
            spec = spec_in(path)
            together = self._together.setdefault(fleet_of(spec), SharedBudget()) if fleet_of(spec) else None
            session = Session(self._choice, reporter, spec, lists=self._lists, together=together)
            screen = self._screen_of(reporter, session)
            # The VM runs this loop, which must still see the other deployments end.
            stays = frozenset({Kind.VM} if self._on_vm else ())
            result = yield from turn(
                session, screen, None, stopped, on_vm=self._on_vm, stays=stays, after=after
            )
            if isinstance(result, Paused):
                after = result
                continue
            # The loop on the VM has no user to report to; an unsuccessful end is an end.
            if not self._on_vm:
                raise_outcome(result)
            return result

    def _note(self, member: Member, end: Pass | TpuctlError) -> None:
        if isinstance(end, TpuctlError):
            self.ended.append(WatchResult(member.name, error=end))
        else:
            self.ended.append(WatchResult(member.name, end.plan.outcome, end.plan.message))
