"""tpuctl adopt: a TPU, a VM or a bucket that was made without tpuctl becomes the deployment's own."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, yes_option
from orchestrator.cli.questions import confirm, must_answer
from orchestrator.domain.names import AT_DOWN
from orchestrator.domain.observation import ForeignBucket, ForeignNode, ForeignVm


@click.command("adopt", cls=Command)
@deployment_options
@yes_option
@click.option("--bucket", "is_bucket", is_flag=True, help="NAME is a bucket.")
@click.option("--vm", "is_vm", is_flag=True, help="NAME is a VM.")
@click.option("--zone", help="Zone of the TPU or VM. Default: the zones of the deployment file.")
@click.option(
    "--at-down", type=click.Choice(AT_DOWN),
    help="What `tpuctl down` does with it; with a bucket, `down --delete-data`. Default: ask; keep VM and bucket.",
)  # fmt: skip
@click.argument("name")
@exclusive("--bucket", "--vm", hint="NAME is either a bucket or a VM: leave one of them out")
def command(
    choice: Choice, yes: bool, is_bucket: bool, is_vm: bool, zone: str | None, at_down: str | None, name: str
) -> None:  # fmt: skip
    """
    Adopt the TPU VM called NAME, which was made without tpuctl, and start the job on it.

    It must match the deployment file; differences are listed, with the lines to change. The changes are shown
    and confirmed before anything happens. Bucket and VM are created first if they are missing. With --bucket
    NAME is a bucket of this project instead, with --vm a VM, which the next `tpuctl up` uses.
    """
    from orchestrator.app.adopt import adopt, adopt_bucket, adopt_vm
    from orchestrator.cli.views import adopt as view
    from orchestrator.cli.views.event_lines import EventPrinter

    must_answer(yes=yes, asks=f"Adopt {name}?")

    def approve(found: ForeignNode | ForeignVm | ForeignBucket) -> None:
        view.show_change(found, at_down)
        confirm(f"Adopt {name}?", yes=yes)

    if is_bucket:
        bucket = adopt_bucket(choice, name, at_down or "keep", EventPrinter(), approve)
        view.show_bucket(bucket, at_down or "keep", as_json=choice.as_json)
    elif is_vm:
        vm = adopt_vm(choice, name, zone, at_down or "keep", EventPrinter(), approve)
        view.show_vm(vm, at_down or "keep", as_json=choice.as_json)
    else:
        done = adopt(choice, name, zone, at_down or "yes", EventPrinter(), approve)
        view.show(done, as_json=choice.as_json)
