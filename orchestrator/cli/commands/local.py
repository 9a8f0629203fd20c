"""tpuctl local: manage the local cloud, and inject faults."""

import click
from click.core import ParameterSource

from orchestrator.cli.options import Command, json_option
from orchestrator.cli.param_types import Time

SECONDS = Time(bare="s", zero=True)
"""A time such as 30s; a number alone is seconds."""


@click.group("local", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Manage the local cloud, and inject faults. Google's clients and gcloud talk to it."""


@command.command("start", cls=Command)
@click.option(
    "--machines", type=click.Choice(["process", "namespace", "auto"]), default="process", show_default=True,
    help="Run the machines as plain processes, or in namespaces with their own files, users and apt (needs root); "
    "auto: in namespaces where it can.",
)  # fmt: skip
@click.option(
    "--latency", type=click.Choice(["instant", "scaled", "realistic"]), default="scaled", show_default=True
)
@click.option(
    "--notice",
    type=SECONDS,
    metavar="TIME",
    help="From the preemption notice to the kill: 30 s on a real one, 2 s in profile scaled.",
)
@click.option("--project", default="local-project", show_default=True)
@click.option("--seed", type=int, help="Ids of resources repeat; without it each local cloud has its own.")
@click.option(
    "--stockout",
    "stockouts",
    multiple=True,
    metavar="ZONE",
    help="A zone without capacity; ZONE/spot: without spot.",
)
@click.option("--quota", multiple=True, metavar="ID@PLACE=LIMIT", help="For example CPUS@us-central1=8.")
@click.option(
    "--fresh-project/--no-fresh-project",
    default=True,
    show_default=True,
    help="The project may have what a new one may: 4 chips of v5e in a zone; or as many as you ask for.",
)
@click.option(
    "--disable-api", "disabled_apis", multiple=True, metavar="API", help="For example tpu.googleapis.com."
)
@click.option(
    "--deny", "denied_permissions", multiple=True, metavar="PERMISSION", help="For example tpu.nodes.create."
)
@click.option(
    "--object-interval",
    type=SECONDS,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Refuse (429) a change of an object that comes sooner after its last one.",
)
@click.option(
    "--policy-delay",
    type=SECONDS,
    metavar="TIME",
    help="Until a role on a bucket counts: 2 minutes or more on a real one, 2 s in profile scaled.",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    default=("default",),
    metavar="NAME",
    help="A network of the project; none: no network; NAME/SUBNETWORK@REGION: custom mode.",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="NAME",
    help="A policy of the organisation, such as compute.vmExternalIpAccess.",
)
@click.option(
    "--reservation",
    "reservations",
    multiple=True,
    metavar="NAME@ZONE=TYPE",
    help="A reservation of one TPU of that type, for example mine@us-west4-a=v5litepod-16.",
)
@click.option(
    "--taken-bucket",
    "taken_buckets",
    multiple=True,
    metavar="NAME",
    help="A name that belongs to another project.",
)
@click.option(
    "--package-lock",
    type=SECONDS,
    metavar="TIME",
    help="How long apt and dpkg are locked on a new machine: minutes on a real one, 6 s in profile scaled.",
)
@click.option(
    "--python",
    default="",
    metavar="VERSION",
    help="The python3 of all machines; by default that of Google's images (TPU 3.10, VM 3.12) if it is here.",
)
@click.option(
    "--without",
    "absent",
    multiple=True,
    type=click.Choice(["cron", "gcloud"]),
    help="What the images of machines lack besides.",
)
@click.option(
    "--other-ports", is_flag=True, help="Take ports that are free now: for when others hold the old ones."
)
@json_option
@click.pass_context
def start(ctx: click.Context, /, as_json: bool, other_ports: bool, **choices: object) -> None:
    """Start the local cloud with these settings. They are kept for the next start; `reset` forgets them."""
    from orchestrator.app.local import start_local
    from orchestrator.cli.views import local as view

    # Only options given by the user: click's defaults would reset settings kept from the last start.
    named = {k: v for k, v in choices.items() if ctx.get_parameter_source(k) is not ParameterSource.DEFAULT}
    view.show_start(start_local(named, other_ports=other_ports), as_json=as_json)


@command.command("stop", cls=Command)
@json_option
def stop(as_json: bool) -> None:
    """Stop the local cloud and all its machines. Disks and buckets stay for the next start."""
    from orchestrator.app.local import stop_local
    from orchestrator.cli.views import local as view

    view.show_stop(stop_local(), as_json=as_json)


@command.command("reset", short_help="Stop the local cloud and delete everything in it.", cls=Command)
@json_option
def reset(as_json: bool) -> None:
    """Stop the local cloud and delete everything in it: machines, disks, buckets, settings."""
    from orchestrator.app.local import reset_local
    from orchestrator.cli.views import local as view

    view.show_stop(reset_local(), as_json=as_json)


@command.command(
    "status", short_help="Show address, machines, faults and what it would have cost.", cls=Command
)
@json_option
def status(as_json: bool) -> None:
    """Show address, machines, pending faults, and what it would have cost."""
    from orchestrator.app.local import local_status
    from orchestrator.cli.views import local as view

    view.show_status(local_status(), as_json=as_json)


@command.command("env", cls=Command)
@json_option
def env(as_json: bool) -> None:
    """Print variables for other tools: eval "$(tpuctl local env)"."""
    from orchestrator.app.local import local_environment
    from orchestrator.cli.views import local as view

    view.show_environment(local_environment(), as_json=as_json)


@command.command("preempt", short_help="Take a spot TPU or VM away, with notice or without.", cls=Command)
@click.argument("name")
@click.option("--no-notice", "--now", is_flag=True, help="SIGKILL at once, without the notice.")
@click.option("--worker", type=int, help="Kill only this worker's machine; the TPU's state stays READY.")
@json_option
def take_away(name: str, no_notice: bool, worker: int | None, as_json: bool) -> None:
    """Take a spot TPU or VM away: notice, grace, SIGKILL of everything on it."""
    from orchestrator.app.local import preempt
    from orchestrator.cli.views import local as view

    view.show_taken_away(preempt(name, worker, notice=not no_notice), as_json=as_json)


@command.command("fault", short_help="Inject faults into the next calls of a method.", cls=Command)
@click.argument("method")
@click.argument("faults", nargs=-1, required=True)
@json_option
def fault(method: str, faults: tuple[str, ...], as_json: bool) -> None:
    """
    Inject FAULTS into the next calls of METHOD, one each: for example tpu.nodes.create stockout drop-answer.

    A node's creation, tpu.nodes.create, also meets never-reports (its machines never run their startup script),
    born:TIMEOUT or another health, and late-ready:SECONDS (its machines work, and the API says CREATING).

    METHOD `state` puts a node into an odd state instead: tpuctl local fault state NAME UNHEALTHY_MAINTENANCE,
    or announces a maintenance: tpuctl local fault state NAME maintenance:600.
    A queued resource is named queued/NAME: tpuctl local fault state queued/NAME FAILED.
    A zone is named zone/ZONE: tpuctl local fault state zone/us-east1-c unreachable (or reachable).
    """
    from orchestrator.app.local import inject
    from orchestrator.cli.views import local as view

    view.show_fault(inject(method, faults), as_json=as_json)
