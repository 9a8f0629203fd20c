"""tpuctl up: create what is missing, push the code, start the job."""

import sys
from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, yes_option
from orchestrator.cli.questions import PriceQuestion


@click.command("up", cls=Command)
@deployment_options
@click.option("--dry-run", is_flag=True, help="Show the plan only: no credentials, no network.")
@click.option("--wait", is_flag=True, help="Keep asking when no zone has capacity.")
@yes_option
@click.option("--no-tpu", is_flag=True, help="Create bucket and VM only; a later `up` makes the TPU.")
@click.argument("plan", required=False, type=click.Path(path_type=Path, dir_okay=False))
@exclusive(
    "PLAN", ("--dry-run", "--no-tpu"), hint="a plan was approved as a whole; make another: tpuctl plan"
)
@exclusive(
    "PLAN", ("--file", "--set"),
    hint="a plan holds file and settings: tpuctl plan --output PLAN --set ..., then: tpuctl up PLAN",
)  # fmt: skip
def command(choice: Choice, dry_run: bool, wait: bool, yes: bool, no_tpu: bool, plan: Path | None) -> None:
    """
    Create bucket, VM and TPU in parallel, push the job over SSH and start it.

    Run it again at any time: only differences are changed, and new code is pushed. `up` exits once the
    job runs; `tpuctl watch` then keeps it alive. PLAN is a file of `tpuctl plan --output F`: exactly that is done,
    or nothing, if something has changed since.

    Before machines are made it shows the price. On a terminal it asks once, unless --yes or --json is given;
    without a terminal (CI, cron) it goes on, as it does on the local cloud, where nothing is billed. With PLAN
    it does not ask: the plan was approved when it was made.
    """
    from orchestrator.app.plan import from_nothing
    from orchestrator.app.up import Goal, UpOptions, bring_up, needs_approval
    from orchestrator.cli.views import plan as plan_view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.job_progress import ProgressLine
    from orchestrator.cli.views.still_waiting import StillWaiting
    from orchestrator.cli.views.up import show, show_price

    if dry_run:
        shown = from_nothing(choice, EventPrinter())
        plan_view.show(shown, as_json=choice.as_json, unbilled=choice.cloud == "local")
        return
    goal = Goal.BUCKET_AND_VM if no_tpu else Goal.JOB
    at_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    asks = needs_approval(choice, plan, yes=yes, at_terminal=at_terminal)

    printer = EventPrinter()
    options = UpOptions(goal, wait, plan, price_first=asks)
    still = StillWaiting(printer)
    question = PriceQuestion(still.asking, show_price, asks=asks)
    progress = lambda spec: ProgressLine(printer, spec).show_job  # noqa: E731
    with still.working():
        done = bring_up(choice, printer, options, show_price=question.approve, show_job=progress)
    show(done, goal, as_json=choice.as_json)
