"""tpuctl demo: a deployment on the local cloud, by public commands only."""

import click

from orchestrator.cli.options import Command


@click.command("demo", cls=Command)
@click.option("--keep", is_flag=True, help="Keep the local cloud and the folder, to look around in.")
@click.option(
    "--machines", type=click.Choice(["process", "namespace"]), default="process", show_default=True,
    help="Run the machines as plain processes, or in namespaces with their own files, users and apt (needs root).",
)  # fmt: skip
def command(keep: bool, machines: str) -> None:
    """
    Show the whole lifetime of a deployment: plan, up, training, two preemptions, done, down.

    Everything is real but the cloud: machines are processes of this computer, the training runs, the
    kills are SIGKILL. One preemption comes with notice, one without. It takes about a minute, needs no
    account and leaves nothing behind.
    """
    from orchestrator.app.demo import play_demo
    from orchestrator.cli.views.event_lines import OverLiveLine

    raise click.exceptions.Exit(play_demo(machines, OverLiveLine(), keep=keep))
