"""tpuctl rehearse: prove that a job recovers from preemptions before paying for it."""

from pathlib import Path

import click

from orchestrator.advice.rehearsal.run import Fault, Moment
from orchestrator.cli.options import Command, exclusive, json_option
from orchestrator.cli.param_types import Parsed


@click.command("rehearse", cls=Command)
@click.option(
    "--file", type=click.Path(path_type=Path, dir_okay=False), help="Deployment file. Default: tpuctl.yaml."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting for the rehearsal."
)
@click.option(
    "--fault", "faults", multiple=True, type=click.Choice([fault.value for fault in Fault]),
    default=("notice", "no-notice"), show_default=True,
    help="A fault to inject, in this order; may be given several times.",
)  # fmt: skip
@click.option(
    "--at", "moments", multiple=True, type=Parsed("moment", Moment.parse), metavar="MOMENT",
    help="When: step:100, checkpoint:2, time:90s or log:REGEX. One for each --fault, in the same order.",
)  # fmt: skip
@click.option(
    "--random", "count", type=int, help="Inject this many faults of random kinds instead of --fault."
)
@exclusive("--fault", "--random")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for --random and for the moments.")
@click.option(
    "--compare/--no-compare", default=True, show_default=True, help="Also run it undisturbed, to compare."
)
@click.option(
    "--machines", type=click.Choice(["process", "namespace"]), default="process", show_default=True,
    help="Run the machines as plain processes, or in namespaces with their own files, users and apt (needs root).",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the local cloud, to look around in.")
@json_option
def command(
    file: Path | None, settings: tuple[str, ...], faults: tuple[str, ...], moments: tuple[Moment, ...],
    count: int | None, seed: int, compare: bool, machines: str, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """
    Run your deployment on a local cloud of its own, inject faults, and judge whether the job recovers.

    \b
    notice     a preemption with its warning
    no-notice  SIGKILL at once
    save       SIGKILL while it saves
    restore    SIGKILL again while it restores
    twice      SIGKILL again as soon as it trains
    vm         the VM is stopped from outside

    Without --at, a fault comes at a step where the job reports steps, else after a checkpoint, else after a
    part of the undisturbed run's time. `checkpoint`, `time` and `log` refer to the machine that is taken away.

    The job runs to its end twice. For a shorter rehearsal end it after a few saves with
    `--set job.target_steps=N`, or leave the undisturbed run out with --no-compare.

    It exits with 0 only if the job came back every time and reached its end. When the job itself fails, its
    last lines are shown and its local cloud is kept to look at.
    """  # noqa: D301 (click reads the character, so the text cannot be raw)
    from orchestrator.app.rehearsal.rehearse import RehearsalPlan, rehearse
    from orchestrator.app.rehearsal.sandbox import CommandFailedError
    from orchestrator.cli.views import verdict
    from orchestrator.cli.views.event_lines import OverLiveLine

    plan = RehearsalPlan([Fault(fault) for fault in faults], moments, count, seed, compare, machines)
    try:
        found = rehearse(file, settings, plan, OverLiveLine(), keep=keep, talk=as_json)
    except CommandFailedError as error:
        # The failed command has printed the reason on stderr.
        raise click.exceptions.Exit(error.code) from None
    verdict.show(found, settings, as_json=as_json)
    # Leftovers run on this computer, so they take precedence over the verdict, as with `down`.
    raise click.exceptions.Exit(5 if found.leftovers else 0 if found.verdict.survives else 1)
