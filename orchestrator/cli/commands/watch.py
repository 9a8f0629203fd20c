"""tpuctl watch: keep the job alive until it is done."""

import signal
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.app.metrics import Metrics
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.engine.reconcile import Pass
    from orchestrator.errors import LeaseHeldError

QUIET_LOOKS = 4
"""Looks in a row at the lease without a `push` after which it is the watch's turn again."""


@click.command("watch")
@deployment_options
@click.option("--on-vm", is_flag=True, help="Let the loop run on the VM, and leave. Needs watch.on_vm.")
@click.option("--stop", is_flag=True, help="With --on-vm: end the loop on the VM.")
@click.option(
    "--metrics", type=click.IntRange(1, 65535), metavar="PORT", help="Serve metrics at 127.0.0.1:PORT."
)
@click.option("--loop", is_flag=True, hidden=True, help="Be the loop on the VM.")
def command(
    choice: Choice,
    on_vm: bool,
    stop: bool,
    metrics: int | None,
    loop: bool,
) -> None:
    """
    Watch the deployment: replace a preempted TPU, start a stopped VM, resume the job, until it is done.

    Ctrl-C leaves everything running; run `tpuctl watch` again to go on. With --on-vm the loop runs on the
    VM and this computer is not needed. Other commands go first: the loop there waits until they have ended.
    `tpuctl push` goes first here too. --metrics is for Prometheus (docs/metrics.md).
    """
    if stop and not on_vm:
        raise UsageError("--stop goes with --on-vm", hint="to end a watch in a terminal, press Ctrl-C there")
    if on_vm:
        _on_vm(choice, stop=stop)
    else:
        _watch(choice, metrics, loop=loop)


def _on_vm(choice: "Choice", *, stop: bool) -> None:
    from orchestrator.app.loop_on_vm import hand_over, take_back
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter

    session = Session(choice, EventPrinter())
    take_back(session) if stop else hand_over(session)


def _begin(session: "Session", *, loop: bool) -> None:
    """Make sure that there is something to watch, and forget what was refused to an earlier `watch`."""
    from dataclasses import replace

    if not session.records.current.job.bundle:
        raise UsageError(
            f"{session.spec.name} is not up: there is nothing to watch", hint="run: tpuctl up",
            unchanged="nothing was changed", code="TPU-130",
        )  # fmt: skip
    if not loop:
        # A person who runs it again has mended what was refused, or wants to know whether it still is.
        session.records.update_later(lambda record: replace(record, refusals=()))


def _watch(choice: "Choice", port: int | None, *, loop: bool) -> None:
    """Run the loop until the deployment has ended; *loop* says that this is the one on the VM."""
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.loop_on_vm import over
    from orchestrator.app.metrics import Metrics
    from orchestrator.app.report import summary_of
    from orchestrator.app.session import Session
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.summary import show_summary
    from orchestrator.engine.loop import raise_outcome

    as_json = choice.as_json
    printer = EventPrinter(as_json=as_json)
    session = Session(choice, printer)
    if loop and over(session):
        say(f"the deployment is over ({session.records.current.outcome}); `tpuctl up` opens it again")
        return
    sweep_expired(session)
    metrics = Metrics(port, session.spec.name) if port else None
    try:
        while (result := _rounds(session, printer, metrics, loop=loop)) is None:
            session = Session(choice, printer)
    except KeyboardInterrupt:
        _leave()
    finally:
        if metrics is not None:
            metrics.close()
    unfinished = bool(result.plan.waiting or result.plan.changes)
    if session.interrupted and (result.plan.outcome is None or unfinished):
        _leave()
    raise_outcome(result)
    summary = summary_of(session)
    if as_json:
        print_json("watch", {"outcome": "done", "reason": result.plan.reason, "summary": summary.as_dict()})
    else:
        say(f"done: {result.plan.reason}", style="bold green")
        show_summary(summary, rehearsed=choice.cloud == "local")
        say("  next:  `tpuctl fetch` copies the model to this computer, `tpuctl down` deletes what is left")


def _leave() -> NoReturn:
    from orchestrator.cli.console import say

    say("stopped watching; everything keeps running, but a preempted TPU is not replaced meanwhile")
    say("  next:  go on with `tpuctl watch`, or remove it all with `tpuctl down`")
    raise click.exceptions.Exit(130)


def _rounds(
    session: "Session", printer: "EventPrinter", metrics: "Metrics | None", *, loop: bool
) -> "Pass | None":
    """Run passes until the end; None when a `push` has gone first and it is our turn again."""
    from orchestrator.domain.lease import HAND_OVER, LOOP, PEOPLE, PUSH
    from orchestrator.errors import LeaseHeldError

    mine, yields = (LOOP, PEOPLE) if loop else ("watch", ("down", HAND_OVER, PUSH))
    try:
        with session.alone(mine, yields), printer:
            return _passes(session, printer, metrics, loop=loop)
    except LeaseHeldError as held:
        if loop or held.asker != PUSH:
            raise
        _let_pass(session, held)
        return None


def _let_pass(session: "Session", held: "LeaseHeldError") -> None:
    """Wait until the command that asked for the lease has had it, and the bucket answers."""
    from orchestrator.cli.console import say
    from orchestrator.domain.lease import LIFE, Holder
    from orchestrator.engine.held import current
    from orchestrator.errors import TransientError

    say(f"tpuctl {held.asker} goes first; this watch goes on after it")
    quiet, told = 0, False
    while quiet < QUIET_LOOKS:
        session.clock.wait(1.0)
        try:
            found = current(session.store)
        except TransientError as error:
            if not told:
                say(f"waiting: {error.message}")
            quiet, told = 0, True
            continue
        holds = found is not None and Holder.from_json(found.data).command == held.asker
        alive = found is not None and session.clock.now() - found.updated < LIFE
        quiet = 0 if holds and alive else quiet + 1


def _passes(session: "Session", printer: "EventPrinter", metrics: "Metrics | None", *, loop: bool) -> "Pass":
    from orchestrator.app.publish import Publication
    from orchestrator.cli.views.job_progress import Progress
    from orchestrator.engine.loop import raise_hopeless
    from orchestrator.errors import TpuctlError

    _begin(session, loop=loop)
    watcher = session.watcher()
    progress, publication = Progress(printer, session.spec), Publication(session, metrics)

    def interrupted(*_: object) -> None:
        if session.interrupted:
            raise KeyboardInterrupt
        session.interrupted = True
        printer.now("leaving when this look is over; Ctrl-C again leaves at once")
        watcher.stop.set()
        watcher.wake.set()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}

    def show(result: "Pass") -> None:
        progress.show(result, session.cost(session.records.current, result.world.seen_at))
        for failure in result.failures:
            printer.failure(failure, session.clock.now())

    def give_up(result: "Pass") -> None:
        if result.plan.outcome is None:
            raise_hopeless(session.records.current)

    # First of all: a fault in what follows, or the stop of our own VM, must not cost the story its end.
    # Whoever is not at the terminal learns of it before anything is drawn. A fault in one ends no other.
    after = (lambda _: session.sink.flush(), session.notifier.seen, show, publication.after, give_up)
    try:
        # The loop on the VM ends with the stop of its own machine, while there is time to say so.
        return watcher.run(lambda seen: loop and _stops_vm(seen), *after)
    except TpuctlError as error:
        session.notifier.stopped(error)
        raise
    finally:
        publication.close()
        session.notifier.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _stops_vm(result: "Pass") -> bool:
    """Say whether this pass has asked for the stop of the VM."""
    from orchestrator.domain.plan import Kind, Verb

    failed = [failure.change for failure in result.failures]
    return any(c.kind is Kind.VM and c.verb is Verb.STOP and c not in failed for c in result.plan.changes)
