"""tpuctl fleet: many TPUs that work on a queue of jobs."""

from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import (
    Command,
    deployment_options,
    follow_option,
    needs,
    output_option,
    yes_option,
)
from orchestrator.cli.param_types import Time
from orchestrator.cli.questions import DELETE_DATA, DELETE_MACHINES, confirm, confirm_deletion, must_answer

user_option = click.option(
    "--user", metavar="LOGIN", envvar="TPUCTL_USER",
    help="Login to act as, for a fleet with users. Default: the account of the credentials.",
)  # fmt: skip
which_argument = click.argument("which", metavar="JOB[/TASK]")


@click.group("fleet", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run many jobs on many TPUs: a queue on a VM, nodes that come back by themselves (docs/fleet.md)."""


@command.command("up", cls=Command, short_help="Create bucket, VM and nodes, and start Slurm on them.")
@deployment_options
@yes_option
def up(choice: Choice, yes: bool) -> None:
    """
    Create bucket, VM and all nodes of the fleet, and start Slurm on them.

    First it shows what an hour costs, and asks once. Run it again at any time: missing nodes are
    requested again, nodes that the file no longer names are deleted, and the rest is not changed.
    `tpuctl fleet watch` then keeps the nodes alive.
    """
    from orchestrator.app.fleet.sessions import FleetPrice
    from orchestrator.app.fleet.up import fleet_up
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter, NamedPrinter

    must_answer(yes=yes or choice.as_json, asks="Create the machines, at the price that is shown first?")

    def priced(price: FleetPrice) -> None:
        view.show_price(price)
        confirm("Go on?", yes=yes or choice.as_json)

    def printer(name: str) -> NamedPrinter:
        return NamedPrinter(name, as_json=False)

    view.show_up(fleet_up(choice, EventPrinter(), printer, priced), as_json=choice.as_json)


@command.command(
    "plan", cls=Command, short_help="Show the price, for each node and in all, and the missing quota."
)
@deployment_options
def plan(choice: Choice) -> None:
    """Show what the fleet costs, in all and for each node, and whether the project's quota has room for it."""
    from orchestrator.app.fleet.plan import fleet_plan
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_plan(fleet_plan(choice, EventPrinter()), as_json=choice.as_json)


@command.command(
    "status", cls=Command, short_help="Show the VM, each node with its task, and how many tasks wait."
)
@deployment_options
def status(choice: Choice) -> None:
    """Show the VM, each node with its task, and how many tasks wait."""
    from orchestrator.app.fleet.status import fleet_status
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_status(fleet_status(choice, EventPrinter()), as_json=choice.as_json)


@command.command("watch", cls=Command, short_help="Replace preempted nodes, and let their tasks run again.")
@deployment_options
@click.option("--on-vm", is_flag=True, help="Start the loop on the VM, and exit. Needs watch.on_vm.")
@click.option("--stop", is_flag=True, help="With --on-vm: stop the loop on the VM.")
@click.option("--loop", is_flag=True, hidden=True, help="Be the loop on the VM.")
@needs("--stop", "--on-vm", hint="to stop a watch in a terminal, press Ctrl-C there")
def watch(choice: Choice, on_vm: bool, stop: bool, loop: bool) -> None:
    """
    Keep the fleet alive: replace preempted nodes, queue their tasks again, until Ctrl-C or the end of the budget.

    What is queued runs on without it; run it again to go on. With --on-vm the loop runs on the VM, beside Slurm,
    and this computer is not needed. Run that again after a `fleet up` that has changed the fleet.
    """
    from orchestrator.app.fleet.sessions import Fleet
    from orchestrator.app.fleet.watch import FleetWatch
    from orchestrator.cli.loops import watch_on_vm, watch_until_stopped
    from orchestrator.cli.views.event_lines import EventPrinter, NamedPrinter

    printer = EventPrinter(as_json=choice.as_json)

    def named(name: str) -> NamedPrinter:
        return NamedPrinter(name, as_json=choice.as_json)

    again = "tpuctl fleet watch"
    if on_vm:
        fleet = Fleet(choice, printer, named)
        watch_on_vm(choice, printer, fleet.head, fleet.members, stop=stop, command=again)
        return
    watch_until_stopped(FleetWatch(choice, printer, named, on_vm=loop), as_json=choice.as_json, again=again)


@command.command("down", cls=Command, short_help="Delete all nodes and the VM, and list what is left.")
@deployment_options
@yes_option
@click.option("--delete-data", is_flag=True, help="Delete the bucket too: all jobs, checkpoints and logs.")
def down(choice: Choice, yes: bool, delete_data: bool) -> None:
    """Delete all nodes, then the VM, and list by label what is left. Data stays without --delete-data."""
    from orchestrator.app.fleet.down import fleet_down
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter, NamedPrinter

    must_answer(yes=yes, asks=f"{DELETE_MACHINES} {DELETE_DATA}" if delete_data else DELETE_MACHINES)

    def printer(name: str) -> NamedPrinter:
        return NamedPrinter(name, as_json=False)

    ended = fleet_down(choice, EventPrinter(), printer, confirm_deletion(yes=yes), delete_data=delete_data)
    view.show_down(ended, as_json=choice.as_json)
    ended.raise_leftovers()


@command.command("submit", cls=Command, short_help="Put the tasks of a job file in the queue.")
@deployment_options
@click.argument("job", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--dry-run", is_flag=True, help="Judge the file and say what would be sent; send nothing.")
@click.option(
    "--takes",
    type=Time(),
    metavar="TIME",
    help="With --dry-run: how long a task takes, for example 30m, to tell the cost.",
)
@needs("--takes", "--dry-run", hint="tpuctl fleet submit JOB --dry-run --takes TIME")
@user_option
@click.option("--priority", help="One of fleet.priorities.  [default: that of the file, or normal]")
def submit(
    choice: Choice, job: Path, dry_run: bool, takes: float | None, user: str | None, priority: str | None
) -> None:
    """
    Send a job to the fleet: JOB is a file with its name, its tasks and the section `job` (docs/fleet.md).

    The same file again changes nothing, and goes on where a submission was interrupted.
    """
    from orchestrator.app.fleet import jobs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    done = jobs.submit(
        choice, job, EventPrinter(), dry_run=dry_run, takes=takes, user=user, priority=priority
    )
    view.show_submitted(done, as_json=choice.as_json)


@command.command("queue", cls=Command, short_help="Show all jobs, or the tasks of one job.")
@deployment_options
@follow_option("Go on, until Ctrl-C or the end of all tasks.")
@click.argument("job", required=False)
def queue(choice: Choice, follow: bool, job: str | None) -> None:
    """
    Show all jobs, or each task of one JOB: what waits, runs or is done, its restarts, its cost and the time left.

    The time left is known when a task is done, or when running ones report steps and have a target.
    """
    from orchestrator.app.fleet.usage import QueueObserver
    from orchestrator.cli.views import fleet_usage as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_queue(QueueObserver(choice, EventPrinter(), job), choice, tasks=job is not None, follow=follow)


@command.command("results", cls=Command, short_help="Show the results of a job's tasks as one table.")
@deployment_options
@output_option("the name that `collect.into` of the job's file has, else none is written")
@click.argument("job")
def results(choice: Choice, output: Path | None, job: str) -> None:
    """
    Show the results of a JOB as one table: parameters, state, restarts, cost, and what each task has left.

    A task leaves the values of the files that `collect.files` of the job's file names.
    """
    from orchestrator.app.fleet.report import write_results
    from orchestrator.cli.views import fleet_usage as view
    from orchestrator.cli.views.event_lines import EventPrinter

    found, path = write_results(choice, job, output, EventPrinter())
    view.show_results(found, path, as_json=choice.as_json)


@command.command("cost", cls=Command, short_help="Show what was spent: by job, on idle nodes, on the VM.")
@deployment_options
@click.option("--by", type=click.Choice(["job", "user"]), default="job", help="Whose costs to show.")
def cost(choice: Choice, by: str) -> None:
    """Show what the fleet has cost: each job's cost, idle time, and the VM. The fractions add up to 100 %."""
    from orchestrator.app.fleet.usage import fleet_usage
    from orchestrator.cli.views import fleet_usage as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_cost(fleet_usage(choice, EventPrinter()), by_login=by == "user", as_json=choice.as_json)


@command.command(
    "report", cls=Command, short_help="Write the fleet's nodes, queue, jobs and cost as one HTML page."
)
@deployment_options
@output_option("NAME-report.html")
def report(choice: Choice, output: Path | None) -> None:
    """
    Write one HTML page: what each node did, the queue over time, jobs, results of sweeps, and money.

    The page holds everything itself and needs no network.
    """
    from orchestrator.app.fleet.report import write_fleet_report
    from orchestrator.cli.views import fleet_usage as view
    from orchestrator.cli.views.event_lines import EventPrinter

    path, usage = write_fleet_report(choice, output, EventPrinter())
    view.show_report(path, usage, as_json=choice.as_json)


@command.command("cancel", cls=Command, short_help="End a job, or one of its tasks, for good.")
@deployment_options
@which_argument
@user_option
def cancel(choice: Choice, which: str, user: str | None) -> None:
    """End a job, or one task of it, for good; a task that runs saves first. What it has saved stays."""
    from orchestrator.app.fleet import jobs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_cancelled(which, jobs.cancel(choice, which, EventPrinter(), user), as_json=choice.as_json)


@command.command("retry", cls=Command, short_help="Queue failed and cancelled tasks again.")
@deployment_options
@which_argument
@user_option
def retry(choice: Choice, which: str, user: str | None) -> None:
    """Queue failed and cancelled tasks again; they resume from their checkpoints. Others are not touched."""
    from orchestrator.app.fleet import jobs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    view.show_retried(which, jobs.retry(choice, which, EventPrinter(), user), as_json=choice.as_json)


@command.command("hold", cls=Command, short_help="Let no further task of a job begin.")
@deployment_options
@click.argument("job")
@user_option
def hold(choice: Choice, job: str, user: str | None) -> None:
    """Let no task of JOB begin until it is released; tasks that run go on."""
    from orchestrator.app.fleet import jobs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    changed = jobs.hold(choice, job, EventPrinter(), held=True, user=user)
    view.show_held(job, held=True, changed=changed, as_json=choice.as_json)


@command.command("release", cls=Command, short_help="Let the tasks of a held job begin.")
@deployment_options
@click.argument("job")
@user_option
def release(choice: Choice, job: str, user: str | None) -> None:
    """Let the tasks of a JOB that was held begin."""
    from orchestrator.app.fleet import jobs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    changed = jobs.hold(choice, job, EventPrinter(), held=False, user=user)
    view.show_held(job, held=False, changed=changed, as_json=choice.as_json)


@command.command("logs", cls=Command, short_help="Show what a task, or each task of a job, has printed.")
@deployment_options
@which_argument
def logs(choice: Choice, which: str) -> None:
    """Show what a task has printed, across machines; of a whole job each line has the task's number."""
    from orchestrator.app.fleet import outputs
    from orchestrator.app.fleet.queue import job_and_task
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    whole_job = job_and_task(which)[1] is None
    if not outputs.read_log(choice, which, view.show_line(whole_job), EventPrinter()):
        view.say_no_log(which)


@command.command("fetch", cls=Command, short_help="Copy the newest checkpoints of tasks to this computer.")
@deployment_options
@which_argument
@output_option("JOB-checkpoints", text="Where to write a folder for each task.", folder=True, exists=True)
@click.option("--uncommitted", is_flag=True, help="Copy the files that no checkpoint contains.")
def fetch(choice: Choice, which: str, output: Path | None, uncommitted: bool) -> None:
    """Copy the newest checkpoint of a task, or of each task of a job, to this computer."""
    from orchestrator.app.fleet import outputs
    from orchestrator.cli.views import fleet as view
    from orchestrator.cli.views.event_lines import EventPrinter

    found = outputs.fetch_checkpoints(choice, which, output, EventPrinter(), uncommitted_files=uncommitted)
    view.show_fetched(found, as_json=choice.as_json)
