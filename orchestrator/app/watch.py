"""Keep a job alive until it is done: passes, which are published and notified of, in turns with `push`."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from orchestrator.app.choice import Choice
from orchestrator.app.expired import sweep_expired
from orchestrator.app.hand_over import over
from orchestrator.app.metrics import Metrics
from orchestrator.app.report import summary_of
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.status import Observation, body_of, loop_of
from orchestrator.domain.lease import HAND_OVER, LIFE, LOOP, PEOPLE, PUSH, Holder
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.endings import raise_hopeless, raise_outcome
from orchestrator.engine.held import current
from orchestrator.engine.loop import Passes, Pause, Watcher, run
from orchestrator.engine.published_status import Publisher, read_curve
from orchestrator.engine.reconcile import Pass
from orchestrator.errors import LeaseHeldError, TpuctlError, TransientError, UsageError
from orchestrator.report.summary import Summary

QUIET_LOOKS = 4
"""Looks in a row at the lease without a `push` after which it is the watch's turn again."""


class Screen(Protocol):
    """Show the job's progress, and turn the first Ctrl-C of somebody at the terminal into a gentle end."""

    def show(self, result: Pass, usd: float) -> None:
        """Show what a pass has seen of the job, which has cost *usd* so far."""

    def gentle(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *stop* when somebody asks for the end while the block runs, and end at once the second time."""


@dataclass(frozen=True)
class Watched:
    """
    Hold how a watch ended: with an outcome, or *stopped_by_user*.

    A loop on the VM that finds nothing to do has no *summary*.
    """

    outcome: Outcome | None
    reason: str
    stopped_by_user: bool = False
    summary: Summary | None = None


def watch(
    choice: Choice, reporter: Reporter, screen_of: Callable[[Session], Screen], *,
    port: int | None = None, loop: bool = False,
) -> Watched:  # fmt: skip
    """
    Run passes until the deployment has ended. Raise the error that belongs to an unhappy end.

    *screen_of* makes what shows the job; *port* is the one of the metrics; *loop* says that this is the loop
    on the VM.
    """
    session = Session(choice, reporter)
    # Before the lease, which people's commands could be waiting for.
    if loop and over(session):
        record = session.records.current
        return Watched(Outcome(record.outcome), record.reason)
    sweep_expired(session)
    stopped = threading.Event()
    with ExitStack() as stack:
        metrics = Metrics(port, session.spec.name) if port else None
        if metrics is not None:
            stack.callback(metrics.close)
        while (result := run(turn(session, screen_of(session), metrics, stopped, loop=loop))) is None:
            # A new one: `push` has written the record meanwhile, perhaps from a changed deployment file.
            session = Session(choice, reporter)
            stopped.clear()
    unfinished = bool(result.plan.waiting or result.plan.changes)
    if stopped.is_set() and (result.plan.outcome is None or unfinished):
        return Watched(None, "", stopped_by_user=True)
    raise_outcome(result)
    return Watched(result.plan.outcome, result.plan.reason, summary=summary_of(session))


class Publication:
    """Publish what each pass has observed: for `status` and the dashboard, and as metrics."""

    def __init__(self, session: Session, metrics: Metrics | None = None) -> None:
        self._session = session
        self._metrics = metrics
        self._out = Publisher(session.cloud.store, session.folder, session.holder.id, session.key)
        # A restart draws on from the stored points: a curve that begins anew would hide what was lost.
        if session.records.in_bucket:
            self._out.curve = read_curve(session.cloud.store)

    def after(self, result: Pass) -> None:
        """Publish one pass."""
        session, record, world = self._session, self._session.records.current, result.world
        observation = Observation(world, record, session.cost(record, world.observed_at), result.plan)
        body = body_of(session, observation, loop_of(session.holder, 0.0))
        # An Unknown bucket is not written to: each try would wait for its time-out and delay the pass.
        usable = record.bucket.observed and isinstance(world.bucket, Present)
        beats = world.known_beats
        news = [
            body["outcome"],
            body["resources"],
            body["next"],
            [(b.phase, b.step, b.committed_step) for b in beats],
        ]
        now = session.clock.now()
        self._out.publish(body, news, now, usable=usable)
        for beat in beats:
            if beat.worker == 0 and beat.step is not None:
                self._out.draw(beat.step, beat.loss, beat.incarnation, beat.updated, usable=usable)
        if self._metrics is not None:
            self._metrics.update(body, world.observed_at, failures=len(result.failures))

    def close(self) -> None:
        """Withdraw what was published: nobody observes any more."""
        if self._session.records.current.bucket.observed:
            self._out.save_curve(self._session.clock.now())
        self._out.withdraw()


def keep_alive(
    watcher: Watcher, deployment: Deployment, *also: Callable[[Pass], None],
    until: Callable[[Pass], bool] = lambda _: False,
) -> Pass:  # fmt: skip
    """Run passes until the deployment's end, or *until*; each of *also* sees all of them."""
    return run(_alive(watcher, deployment, *also, until=until))


def _alive(
    watcher: Watcher, deployment: Deployment, *also: Callable[[Pass], None], until: Callable[[Pass], bool]
) -> Passes:
    def give_up(result: Pass) -> None:
        if result.plan.outcome is None:
            raise_hopeless(deployment.records.current)

    # First of all: a fault in what follows, or the stop of our own VM, must not cost the story its end.
    return watcher.passes(until, lambda _: deployment.store_events(), *also, give_up)


def must_be_up(session: Session) -> None:
    """Raise UsageError when there is nothing to watch."""
    if not session.records.current.job.bundle:
        raise UsageError(
            f"{session.spec.name} is not up: there is nothing to watch", hint="run: tpuctl up",
            changed="nothing was changed", code="TPU-130",
        )  # fmt: skip


def turn(
    session: Session, screen: Screen, metrics: Metrics | None, stopped: threading.Event, *, loop: bool = False,
    stays: frozenset[Kind] = frozenset(),
) -> Generator[Pause, None, Pass | None]:  # fmt: skip
    """Make passes until the end; None when a `push` has gone first and it is our turn again."""
    mine, yields = (LOOP, PEOPLE) if loop else ("watch", ("down", HAND_OVER, PUSH))
    try:
        with session.holding_lease(mine, yields), session.reporter:
            return (yield from _passes(session, screen, metrics, stopped, stays, loop=loop))
    except LeaseHeldError as held:
        # The loop on the VM ends here and cron starts it again; a person's watch waits only for a push.
        if loop or held.asker != PUSH:
            raise
        _let_pass(session, held)
        return None


def _let_pass(session: Session, held: LeaseHeldError) -> None:
    """Wait until the command that asked for the lease has had it, and the bucket answers."""
    session.reporter.say(f"paused for tpuctl {held.asker}; resuming afterwards")
    quiet, reported = 0, False
    # Between its wish and its lease a push holds nothing, so one look without it does not mean that it is over.
    while quiet < QUIET_LOOKS:
        session.clock.wait(1.0)
        try:
            found = current(session.store)
        except TransientError as error:
            if not reported:
                session.reporter.say(f"waiting: {error.message}")
            quiet, reported = 0, True
            continue
        holds = found is not None and Holder.from_json(found.data).command == held.asker
        alive = found is not None and session.clock.now() - found.updated < LIFE
        quiet = 0 if holds and alive else quiet + 1


def _passes(
    session: Session, screen: Screen, metrics: Metrics | None, stopped: threading.Event,
    stays: frozenset[Kind], *, loop: bool,
) -> Passes:  # fmt: skip
    must_be_up(session)
    if not loop:
        # A person who runs it again has mended what was refused, or wants to know whether it still is.
        session.records.update_later(lambda record: replace(record, refusals=()))
    watcher, publication = session.watcher(stays=stays), Publication(session, metrics)

    def stop() -> None:
        stopped.set()
        watcher.stop.set()
        watcher.wake.set()

    def show(result: Pass) -> None:
        screen.show(result, session.cost(session.records.current, result.world.observed_at))
        for failure in result.failures:
            session.reporter.failure(failure, session.clock.now())

    # Whoever is not at the terminal learns of it before anything is drawn. A fault in one ends no other.
    also = (session.notifier.take_pass, show, publication.after)
    try:
        with screen.gentle(stop):
            # The loop on the VM ends with the stop of its own machine, while there is time to say so.
            until = lambda result: loop and _stops_vm(result)  # noqa: E731
            return (yield from _alive(watcher, session.deployment, *also, until=until))
    except TpuctlError as error:
        # Before the error leaves: a watch that dies in the night must reach whoever is not at the terminal.
        session.notifier.stopped(error)
        raise
    finally:
        # Withdrawn on every way out: a snapshot without a loop would tell `status` that somebody watches.
        publication.close()
        session.notifier.end()


def _stops_vm(result: Pass) -> bool:
    """Say whether this pass has asked for the stop of the VM."""
    failed = [failure.change for failure in result.failures]
    return any(c.kind is Kind.VM and c.verb is Verb.STOP and c not in failed for c in result.plan.changes)
