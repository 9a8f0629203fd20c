"""
tpuctl watch: keep the job alive until it is done.
"""

import signal
from pathlib import Path

import click

from orchestrator.cli.options import deployment_options


@click.command("watch")
@deployment_options
def command(file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool) -> None:
    """
    Watch the deployment: replace a preempted TPU, start a stopped VM, resume the job, until it is done.

    Ctrl-C leaves everything running; run `tpuctl watch` again to go on.
    """
    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.output import print_json, say
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.summary_view import show_summary, summary_of
    from orchestrator.cli.wiring import Choice, Session
    from orchestrator.engine.reconcile import Pass
    from orchestrator.engine.watch import raise_hopeless, raise_outcome
    from orchestrator.errors import UsageError

    choice = Choice(file, settings, cloud, as_json)
    printer = EventPrinter(as_json=as_json)
    session = Session(choice, printer)
    with session.alone("watch", yields=("down",)), printer:
        if not session.record.history.bundle:
            raise UsageError(
                f"{session.spec.name} is not up: there is nothing to watch", hint="run: tpuctl up",
                unchanged="nothing was changed", code="TPU-130",
            )  # fmt: skip
        watcher = session.watcher()
        progress = Progress(printer, session.spec)

        def interrupted(*_: object) -> None:
            watcher.stop.set()
            watcher.wake.set()

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}

        def after(result: Pass) -> None:
            progress.show(result, session.cost(session.record.history, result.world.seen_at))
            for failure in result.failures:
                printer.failure(failure, session.clock.now())
            session.sink.flush()
            if result.plan.outcome is None:
                raise_hopeless(session.record.history)

        try:
            result = watcher.run(lambda _: False, after)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    unfinished = bool(result.plan.waiting or result.plan.changes)
    if watcher.stop.is_set() and (result.plan.outcome is None or unfinished):
        say("stopped watching; everything keeps running, but a preempted TPU is not replaced meanwhile")
        say("  next:  go on with `tpuctl watch`, or remove it all with `tpuctl down`")
        raise click.exceptions.Exit(130)
    raise_outcome(result)
    summary = summary_of(session)
    if as_json:
        print_json("watch", {"outcome": "done", "reason": result.plan.reason, "summary": summary.as_dict()})
    else:
        say(f"done: {result.plan.reason}", style="bold green")
        show_summary(summary, rehearsed=cloud == "local")
