"""tpuctl watch: keep the job alive until it is done."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, acts_on_name, deployment_options, exclusive, needs


@click.command("watch", cls=Command)
@deployment_options
@click.option("--on-vm", is_flag=True, help="Start the loop on the VM, and exit. Needs watch.on_vm.")
@click.option("--stop", is_flag=True, help="With --on-vm: stop the loop on the VM.")
@click.option(
    "--metrics", type=click.IntRange(1, 65535), metavar="PORT", help="Serve metrics at 127.0.0.1:PORT."
)
@click.option("--all", "everything", is_flag=True, help="Watch all deployments of this computer.")
@click.option("--loop", is_flag=True, hidden=True, help="Be the loop on the VM.")
@acts_on_name
@exclusive(
    "--all", ("NAME", "--file", "--set", "--on-vm", "--metrics"),
    hint="--all watches what is up; run: tpuctl watch --all",
)  # fmt: skip
@needs("--stop", "--on-vm", hint="to stop a watch in a terminal, press Ctrl-C there")
def command(
    choice: Choice,
    on_vm: bool,
    stop: bool,
    metrics: int | None,
    everything: bool,
    loop: bool,
    name: str | None,
) -> None:
    """
    Watch the deployment: replace a preempted TPU, start a stopped VM, resume the job, until it is done.

    Ctrl-C leaves everything running; run `tpuctl watch` again to go on. With --on-vm the loop runs on the
    VM and this computer is not needed. The loop on the VM pauses while another command works;
    a watch here pauses for `tpuctl push`. --metrics is for Prometheus (docs/metrics.md). With --all one
    process watches all deployments that this computer has brought up (docs/many.md), with NAME one of them;
    without either it is the one of the deployment file.
    """
    from orchestrator.app.deployment.earlier_costs import open_named
    from orchestrator.app.loop.watch import watch_until_interrupted
    from orchestrator.app.loop.watch_all import WatchAll
    from orchestrator.cli.loops import watch_on_vm, watch_until_stopped
    from orchestrator.cli.views import watch as view
    from orchestrator.cli.views.event_lines import EventPrinter, NamedPrinter
    from orchestrator.cli.views.job_progress import MemberLine, ProgressLine

    if everything:
        named = lambda name: NamedPrinter(name, as_json=choice.as_json)  # noqa: E731
        loops = WatchAll(choice, named, lambda printer, session: MemberLine(printer, session.spec))
        watch_until_stopped(loops, as_json=choice.as_json, again="tpuctl watch --all")
    if on_vm:
        session = open_named(choice, name, EventPrinter(), "watch")
        watch_on_vm(choice, session.reporter, session, stop=stop, command="tpuctl watch")
        return
    printer = EventPrinter(as_json=choice.as_json)
    screen = lambda session: ProgressLine(printer, session.spec)  # noqa: E731
    done = watch_until_interrupted(choice, printer, screen, name, port=metrics, on_vm=loop)
    view.show(done, unbilled=choice.cloud == "local", as_json=choice.as_json)
    if done.stopped_by_user:
        # The shell's status for SIGINT, so that scripts can tell "stopped by hand" from "done".
        raise click.exceptions.Exit(130)
