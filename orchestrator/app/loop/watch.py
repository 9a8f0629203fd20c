"""Keep a job alive until it is done: run passes, publish and notify, and let `push` take turns."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import open_named
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.quota_holders import naming_quota_holders
from orchestrator.app.deployment.session import Session
from orchestrator.app.loop.metrics import Metrics
from orchestrator.app.loop.on_vm import nothing_to_watch
from orchestrator.app.report import curve_of, summary_of
from orchestrator.app.status.status import JudgedDeployment, status_of, watcher_status
from orchestrator.app.this_computer.holder import process_ended, woken_by_others
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.lease import EXPIRES_AFTER, LOOP, PEOPLE, PUSH, WATCH_ON_VM, Holder
from orchestrator.domain.observation import Present
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.record import JobRecord
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.lease.lease_release import current
from orchestrator.engine.loop.loop import Loop, Passes, Pause, run
from orchestrator.engine.outcome_errors import raise_hopeless, raise_outcome
from orchestrator.engine.publish.paused import forget_paused, note_paused
from orchestrator.engine.publish.publisher import Publisher
from orchestrator.errors import LeaseHeldError, TpuctlError, TransientError, UsageError
from orchestrator.report.summary import Summary

QUIET_POLLS = 4
"""Polls of the lease in a row without a `push` after which the watch continues."""


class Screen(Protocol):
    """A display of the job's progress that turns the first Ctrl-C into a graceful stop."""

    def show(self, result: Pass, usd: float, upper_usd: float) -> None:
        """Show what a pass has observed of the job, and its cost so far, also by the highest prices."""

    def graceful_stop(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *stop* at the first Ctrl-C while the block runs, and end at once at the second."""


@dataclass(frozen=True)
class Watched:
    """
    The end of a watch: an outcome, or *stopped_by_user*.

    *summary* is None for a loop on the VM that had nothing to do.
    """

    outcome: Outcome | None
    message: str
    stopped_by_user: bool = False
    summary: Summary | None = None


@dataclass(frozen=True)
class Paused:
    """A pause for the command *asker*, before which the record said *job*."""

    asker: str
    job: JobRecord

    def end(self, session: Session) -> str:
        """Return that the watch goes on, and what *asker* has changed."""
        was, now = self.job, session.records.current.job
        pairs = {
            "new code": (was.bundle, now.bundle),
            "new settings": (was.settings, now.settings),
            "a new agent": (was.agent, now.agent),
        }
        new = " and ".join(name for name, (before, after) in pairs.items() if before != after)
        changed = f"the job has {new}" if new else "nothing of the job has changed"
        return f"resuming after `tpuctl {self.asker}`: {changed}"


def watch(
    choice: Choice, reporter: Reporter, screen_of: Callable[[Session], Screen], name: str | None = None, *,
    port: int | None = None, on_vm: bool = False,
) -> Watched:  # fmt: skip
    """
    Run passes until the deployment has ended. Raise the error of an unsuccessful end.

    *screen_of* creates the display; *port* is that of the metrics; *on_vm* means that this is the loop on the
    VM.
    """
    session = open_named(choice, name, reporter, "watch")
    # Before the lease, for which a user's command may be waiting.
    if on_vm and nothing_to_watch(session):
        record = session.records.current
        return Watched(record.outcome, record.message)
    end_expired(session)
    stopped = threading.Event()
    with ExitStack() as stack:
        metrics = Metrics(port, session.spec.name) if port else None
        if metrics is not None:
            stack.callback(metrics.close)
        after: Paused | None = None
        while isinstance(
            result := run(turn(session, screen_of(session), metrics, stopped, on_vm=on_vm, after=after)),
            Paused,
        ):
            after = result
            # A new session, because `push` has changed the record, perhaps from an edited deployment file.
            session = open_named(choice, name, reporter, "watch")
            stopped.clear()
    ended = result.plan.outcome is not None and result.plan.settled
    if stopped.is_set() and not ended:
        return Watched(None, "", stopped_by_user=True)
    raise_outcome(result)
    return Watched(result.plan.outcome, result.plan.message, summary=summary_of(session))


def watch_until_interrupted(
    choice: Choice, reporter: Reporter, screen_of: Callable[[Session], Screen], name: str | None = None, *,
    port: int | None = None, on_vm: bool = False,
) -> Watched:  # fmt: skip
    """Watch as `watch` does, for a user at a terminal: an interrupt is the end that the user wanted."""
    try:
        return watch(choice, reporter, screen_of, name, port=port, on_vm=on_vm)
    except KeyboardInterrupt:
        # The second Ctrl-C, or one before the first pass; the next watch continues from the record.
        return Watched(None, "", stopped_by_user=True)


class Publication:
    """Publishes each pass: for `status` and the dashboard, and as metrics."""

    def __init__(self, session: Session, metrics: Metrics | None = None) -> None:
        self._session = session
        self._metrics = metrics
        self._out = Publisher(session.cloud.store, session.folder, session.holder.id, session.key)
        # Continue the stored curve after a restart: a new one would hide the steps that were lost.
        if session.records.in_bucket:
            self._out.curve = curve_of(session)

    def after(self, result: Pass) -> None:
        """Publish one pass: its status, the points of the curve, and the metrics."""
        session, record, world = self._session, self._session.records.current, result.world
        observation = JudgedDeployment(world, record, *session.costs(record, world.observed_at), result.plan)
        status = status_of(session, observation, watcher_status(session.holder, 0.0))
        # Do not write to an Unknown bucket: each try would delay the pass by its timeout.
        usable = record.bucket.observed and isinstance(world.bucket, Present)
        heartbeats = world.known_heartbeats
        news = [
            status.outcome,
            status.resources,
            status.upcoming,
            [(b.phase, b.step, b.committed_step) for b in heartbeats],
        ]
        now = session.clock.now()
        self._out.publish(status, news, now, usable=usable)
        for heartbeat in heartbeats:
            if heartbeat.worker == 0 and heartbeat.step is not None:
                self._out.draw(heartbeat, usable=usable)
        if self._metrics is not None:
            self._metrics.update(status, world.observed_at, failures=len(result.failures))

    def close(self) -> None:
        """Withdraw the publication, since no watcher runs any more."""
        if self._session.records.current.bucket.observed:
            self._out.save_curve(self._session.clock.now())
        self._out.withdraw()


def passes_to_the_end(
    loop: Loop, deployment: Deployment, *also: Callable[[Pass], None],
    until: Callable[[Pass], bool] = lambda _: False,
) -> Passes:  # fmt: skip
    """Run passes until the deployment's end, or *until*; call each of *also* with each pass."""

    def give_up(result: Pass) -> None:
        if result.plan.outcome is None:
            raise_hopeless(deployment.records.current)

    # First: the events must be stored even if a later function fails or our own VM is stopped.
    return loop.passes(until, lambda _: deployment.store_events(), *also, give_up)


def must_be_up(session: Session) -> None:
    """Raise UsageError if the deployment is not up."""
    record, name = session.records.current, session.spec.name
    if not record.job.bundle:
        # After the end of a job its user came for the model, not for more steps.
        done = record.outcome is Outcome.DONE
        raise UsageError(
            f"{name} is {'done, and down' if done else 'not up'}: there is nothing to watch",
            hint="`tpuctl checkpoints fetch` copies the model" if done else "run: tpuctl up",
            changed="nothing was changed", code="TPU-130",
        )  # fmt: skip


def turn(
    session: Session, screen: Screen, metrics: Metrics | None, stopped: threading.Event, *, on_vm: bool = False,
    stays: frozenset[Kind] = frozenset(), after: Paused | None = None,
) -> Generator[Pause, None, Pass | Paused]:  # fmt: skip
    """
    Run passes until the end, or until a `push` was let go first, when the watch should continue.

    *after* is such a pause, if it has just been one.
    """
    mine, yields = (LOOP, PEOPLE) if on_vm else ("watch", ("down", WATCH_ON_VM, PUSH))
    try:
        with session.holding_lease(mine, yields), naming_quota_holders(session), session.reporter:
            must_be_up(session)
            if after is not None:
                session.reporter(Event(session.clock.now(), EventKind.GOES_ON, after.end(session)))
            return (yield from _passes(session, screen, metrics, stopped, stays, on_vm=on_vm))
    except LeaseHeldError as held:
        # The loop on the VM ends, since cron restarts it; a user's watch yields to a push only.
        if on_vm or held.asker != PUSH:
            raise
        return _let_pass(session, held)


def _let_pass(session: Session, held: LeaseHeldError) -> Paused:
    """Wait until the command that asked for the lease has finished, and the bucket answers."""
    paused = Paused(held.asker, session.records.current.job)

    def say(kind: EventKind, text: str) -> None:
        session.reporter(Event(session.clock.now(), kind, text))

    say(EventKind.PAUSED, f"paused for `tpuctl {held.asker}`; resuming afterwards")
    quiet, reported = 0, False
    session.reporter.now(f"paused for `tpuctl {held.asker}`")
    with session.reporter:
        # Between its wish and its lease a push holds nothing, so one poll without a holder proves nothing.
        while quiet < QUIET_POLLS:
            note_paused(session.folder, session.holder, session.clock.now())
            session.clock.wait(1.0)
            try:
                found = current(session.store)
            except TransientError as error:
                if not reported:
                    say(EventKind.WAITING, f"waiting: {error.message}")
                quiet, reported = 0, True
                continue
            holder = None if found is None else Holder.from_json(found.data)
            holds = holder is not None and holder.command == held.asker
            # A push that was killed leaves its lease behind, in which no TPU would be replaced.
            ended = holder is not None and process_ended(holder)
            alive = found is not None and session.clock.now() - found.updated < EXPIRES_AFTER and not ended
            quiet = 0 if holds and alive else quiet + 1
    return paused


def _passes(
    session: Session, screen: Screen, metrics: Metrics | None, stopped: threading.Event,
    stays: frozenset[Kind], *, on_vm: bool,
) -> Passes:  # fmt: skip
    if not on_vm:
        # A user who runs it again has fixed what was refused, or wants to know whether it still is.
        session.records.update_later(lambda record: replace(record, refusals=()))
    loop, publication = session.loop(stays=stays), Publication(session, metrics)

    def stop() -> None:
        stopped.set()
        loop.stop.set()
        loop.wake.set()

    def show(result: Pass) -> None:
        screen.show(result, *session.costs(session.records.current, result.world.observed_at))
        for failure in result.failures:
            session.reporter.failure(failure, session.clock.now())

    # Notifications before the display. An error in one of these does not stop the others.
    also = (session.notifier.take_pass, show, publication.after)
    try:
        with screen.graceful_stop(stop), woken_by_others(loop.wake):
            # The loop on the VM ends with the stop of its own machine, so it reports that first.
            until = lambda result: on_vm and _stops_vm(result)  # noqa: E731
            return (yield from passes_to_the_end(loop, session.deployment, *also, until=until))
    except TpuctlError as error:
        # Before the error propagates: users away from the terminal must learn that the watch has ended.
        session.notifier.stopped(error)
        raise
    finally:
        # On every way out, or `status` would show a watcher that does not run.
        publication.close()
        forget_paused(session.folder)
        session.notifier.end()


def _stops_vm(result: Pass) -> bool:
    """Return whether this pass requested the stop of the VM."""
    failed = [failure.change for failure in result.failures]
    return any(c.kind is Kind.VM and c.verb is Verb.STOP and c not in failed for c in result.plan.changes)
