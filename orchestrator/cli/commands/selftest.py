"""tpuctl selftest: the acceptance kit, run once against the real service, or here against the local cloud."""

from pathlib import Path

import click

from orchestrator.cli.options import Command, cloud_option, json_option, yes_option
from orchestrator.cli.param_types import Time
from orchestrator.cli.questions import confirm, must_answer


@click.command("selftest", cls=Command)
@cloud_option
@json_option
@click.option("--project", help="Project to run in.  [default: that of the login]")
@click.option("--zone", default="us-west1-c", show_default=True, help="Zone of TPU and VM.")
@click.option("--type", "tpu_type", default="v5litepod-4", show_default=True, help="TPU type.")
@click.option("--no-tpu", is_flag=True, help="Bucket and VM only, for a project without TPU quota.")
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True, help="USD at most."
)
@click.option(
    "--ttl", type=Time(bare="m", between=("5m", "4h")), default="90m", show_default=True, metavar="TIME",
    help="Time to live of all that it creates, from 5m to 4h; a number alone is minutes.",
)  # fmt: skip
@click.option(
    "--record", type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the shapes of all calls in this file, shown before it is written.",
)  # fmt: skip
@click.option(
    "--compare", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Replay the stages of a recording on the local cloud, and print what differs.",
)  # fmt: skip
@yes_option
def command(
    cloud: str, as_json: bool, project: str | None, zone: str, tpu_type: str, no_tpu: bool, budget: float,
    ttl: float, record: Path | None, compare: Path | None, yes: bool,
) -> None:  # fmt: skip
    """
    Run the whole of tpuctl once on the cloud, delete everything, and prove that nothing is left.

    It asks once, with the sum. A budget and a time to live hold from the first create on, also when this
    computer is switched off. --record keeps shapes only: no names, no values, no keys. Exits with 0 when all
    stages worked, 1 when one failed or a comparison found differences, 5 when something is left.
    """
    from orchestrator.app.selftest.selftest import carry_out, costs_money, prepare
    from orchestrator.app.selftest.stages import WantedProofs
    from orchestrator.cli import main
    from orchestrator.cli.views import selftest as view
    from orchestrator.cli.views.event_lines import EventPrinter

    wanted = WantedProofs(cloud, project, zone, tpu_type, not no_tpu, budget, ttl)
    yes_to_costs = yes or not costs_money(wanted, compare)
    # First, because `prepare` spends minutes on deleting what an earlier self-test left.
    must_answer(yes=yes_to_costs, asks="Run it, for the money that it costs?")
    reporter = EventPrinter()
    prepared = prepare(wanted, compare, lambda words: main.run(list(words)), reporter)
    view.announce(prepared)
    confirm("Go on?", yes=yes_to_costs)
    done = carry_out(prepared, reporter)
    view.show_stages(done)
    if record is not None:
        view.offer_recording(done, record, yes=yes, err=as_json)
    view.show(done, as_json=as_json)
    # Leftovers have already raised their own error (5), which takes precedence over every other end.
    raise click.exceptions.Exit(130 if done.interrupted else 1 if done.failed else 0)
