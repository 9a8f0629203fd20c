"""tpuctl adopt: a TPU that was made without tpuctl becomes the deployment's own."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say, talk
from orchestrator.cli.options import Command, confirm, deployment_options, must_answer, yes_option
from orchestrator.domain.observation import ForeignNode


@click.command("adopt", cls=Command)
@deployment_options
@yes_option
@click.option("--zone", help="Zone of the TPU. Default: the zones of the deployment file.")
@click.argument("tpu")
def command(choice: Choice, yes: bool, zone: str | None, tpu: str) -> None:
    """
    Take over the TPU VM named TPU, which was made without tpuctl, and start the job on it.

    It must be what the deployment file says; what differs is named, with the lines to change. Before anything
    is changed it says what will be, and asks. Bucket and VM are made first, where they are missing. To use a
    bucket that exists, set bucket.name and bucket.adopt in the file.
    """
    from orchestrator.app.adopt import adopt
    from orchestrator.cli.views.event_lines import EventPrinter

    must_answer(yes=yes)

    def approve(found: ForeignNode) -> None:
        node, write = found.node, talk if yes else say
        capacity = "spot" if node.spot else "on demand"
        count = f"{len(node.workers)} worker{'' if len(node.workers) == 1 else 's'}"
        write(f"TPU {node.name} in {node.zone}: {found.type}, {found.runtime}, {capacity}, {count}")
        write("  changed: labels of the deployment; in its metadata our SSH key, and guest attributes on")
        write("  on its machines: tpuctl's agent and a cron job in /opt/tpuctl; the job starts at once")
        write(
            "  not changed: your labels, keys, startup script and files. What runs there goes on: stop it first"
        )
        write(
            "  from then on it is deleted and replaced after a preemption, and deleted when the job is done or"
        )
        write("  its time or budget is over, as every TPU of the deployment. `tpuctl down` asks separately")
        confirm(f"Adopt {node.name}?", yes=yes)

    done = adopt(choice, tpu, zone, EventPrinter(), approve)
    if choice.as_json:
        body = {"tpu": done.name, "zone": done.zone, "incarnation": done.incarnation, "changes": done.changes}
        print_json("adopt", body)
    else:
        say(
            f"TPU {done.name} runs the job as incarnation {done.incarnation}. Next: tpuctl watch",
            style="green",
        )
