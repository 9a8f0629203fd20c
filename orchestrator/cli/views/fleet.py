"""Show a fleet, its queue and its jobs."""

from collections.abc import Callable, Sequence

from orchestrator.app.fleet.down import FleetDown
from orchestrator.app.fleet.jobs import Submitted
from orchestrator.app.fleet.results import FetchedTask
from orchestrator.app.fleet.sessions import FleetPrice
from orchestrator.app.fleet.status import FleetStatus
from orchestrator.app.fleet.up import FleetUp
from orchestrator.cli.console import print_json, put, say, talk
from orchestrator.cli.views.fleet_account import put_table
from orchestrator.domain.amounts import usd_text
from orchestrator.pricing.cost import Hourly


def show_price(price: FleetPrice) -> None:
    """Print what an hour of the whole fleet costs, and until when."""
    spec = price.spec
    head, node = _hour(price.head), _hour(price.node)
    unknown = (*price.head.unknown, *price.node.unknown)
    where = " (nothing is billed on the local cloud)" if price.unbilled else ""
    least = "at least " if unknown else ""
    total = head + price.nodes * node
    say(f"Price: {least}{usd_text(total)} an hour{where}", style="bold")
    kind = f"{spec.tpu.type} {'spot' if spec.tpu.spot else 'on demand'}"
    say(f"  {price.nodes} TPUs {kind} in {price.node.zone}: {usd_text(node)} each; VM: {usd_text(head)}")
    say(f"  until ttl ({spec.watch.ttl}): at most {usd_text(total * spec.watch.ttl / 3600)}")
    if unknown:
        say(f"  no price is known for: {', '.join(unknown)}")
    budget = spec.watch.budget_usd
    if budget is not None:
        say(f"  watch.budget_usd: tpuctl fleet watch ends the whole fleet at {budget:g} USD")


def _hour(price: Hourly) -> float:
    return sum(line.billed_usd for line in price.lines if line.billed_usd is not None)


def show_up(done: FleetUp, *, as_json: bool) -> None:
    """Print which nodes are up."""
    if as_json:
        missing = {name: error.message for name, error in done.missing.items()}
        body = {"name": done.name, "bucket": done.bucket, "up": list(done.up), "missing": missing}
        print_json("fleet-up", body)
        return
    for name, error in done.missing.items():
        say(f"{name} is not up: {error.message}", style="yellow")
    total = len(done.up) + len(done.missing)
    goes_on = ", which asks on for the others, also in other zones" if done.missing else ""
    up = f"{done.name}: {len(done.up)} of {total} nodes are up"
    say(f"{up}. Next: tpuctl fleet watch{goes_on}", style="green")


def show_status(status: FleetStatus, *, as_json: bool) -> None:
    """Print the VM, the nodes, and the queue in a line."""
    if as_json:
        nodes = [
            {"name": n.name, "tpu": n.tpu, "zone": n.zone, "slurm": n.slurm, "task": n.task}
            for n in status.nodes
        ]
        body = {
            "name": status.name, "vm": status.vm, "nodes": nodes, "waiting": status.waiting,
            "running": status.running, "usd": round(status.usd, 4), "trouble": status.trouble,
        }  # fmt: skip
        print_json("fleet-status", body)
        return
    put(f"{status.name}: VM {status.vm}, {usd_text(status.usd)} so far")
    put_table([
        ("NODE", "TPU", "ZONE", "SLURM", "TASK"),
        *((n.name, n.tpu, n.zone or "-", n.slurm or "-", n.task or "-") for n in status.nodes),
    ])  # fmt: skip
    put(f"Slurm does not answer: {status.trouble}" if status.trouble
        else f"{status.running} tasks run, {status.waiting} wait")  # fmt: skip


def show_down(down: FleetDown, *, as_json: bool) -> None:
    """Print that nothing is left; what is left is for the error to tell, and for JSON."""
    if as_json:
        print_json("fleet-down", {"name": down.name, "left": down.leftovers, "data_kept": bool(down.bucket)})
    elif not down.leftovers:
        if down.idle_cloud_stopped:
            talk("the local cloud had nothing left to do and was stopped")
        where = f"; data is kept in gs://{down.bucket}" if down.bucket else ""
        say(f"nothing is left of {down.name} and its {down.nodes} nodes{where}", style="green")


def show_submitted(done: Submitted, *, as_json: bool) -> None:
    """Print what was submitted."""
    if as_json:
        print_json("fleet-submit", {"job": done.name, "tasks": done.tasks, "ended": done.ended})
        return
    ended = f", {done.ended} of them ended before" if done.ended else ""
    say(f"{done.name}: {_tasks(done.tasks)} submitted{ended}. Next: tpuctl fleet queue", style="green")


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def show_cancelled(which: str, tasks: int, *, as_json: bool) -> None:
    """Print what was cancelled."""
    if as_json:
        print_json("fleet-cancel", {"job": which, "tasks": tasks})
    else:
        say(f"{which} is cancelled: {_tasks(tasks)} waited or ran", style="green")


def show_retried(which: str, tasks: Sequence[int], *, as_json: bool) -> None:
    """Print which tasks were queued again."""
    if as_json:
        print_json("fleet-retry", {"job": which, "tasks": list(tasks)})
    elif tasks:
        say(f"{which}: {_tasks(len(tasks))} queued again. Next: tpuctl fleet queue", style="green")
    else:
        say(f"{which}: no task has failed or was cancelled, so nothing was queued again")


def show_held(job: str, *, held: bool, changed: bool, as_json: bool) -> None:
    """Print that a job is held or released."""
    if as_json:
        print_json("fleet-hold", {"job": job, "held": held, "changed": changed})
        return
    before = "" if changed else " (it was before)"
    what = "held; tasks that run go on" if held else "released"
    say(f"{job} is {what}{before}", style="green")


def show_line(numbered: bool) -> Callable[[int, int, str], None]:
    """Return what prints a line of a task's log, with the task's number where there are several."""

    def show(task: int, _: int, line: str) -> None:
        put(f"{task}: {line}" if numbered else line)

    return show


def say_no_log(which: str) -> None:
    """Say that nothing was printed yet."""
    say(f"{which} has no log yet; it comes with the first lines that the job prints")


def show_fetched(found: Sequence[FetchedTask], *, as_json: bool) -> None:
    """Print what was copied."""
    if as_json:
        body = [
            {"task": one.task, **_saved(one), "folder": str(one.folder)} for one in found
        ]  # fmt: skip
        print_json("fleet-fetch", {"tasks": body})
        return
    for one in found:
        what = f"step {one.number}" if one.kind == "step" else "what no checkpoint contains"
        put(f"task {one.task}: {what} is in {one.folder}")


def _saved(one: FetchedTask) -> dict[str, int]:
    return {"step": one.number} if one.kind == "step" else {"incarnation": one.number}
