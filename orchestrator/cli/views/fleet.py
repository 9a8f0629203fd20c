"""Show a fleet, its queue and its jobs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from orchestrator.app.fleet.down import FleetDown
from orchestrator.app.fleet.jobs import Submitted
from orchestrator.app.fleet.outputs import FetchedTask
from orchestrator.app.fleet.plan import FleetPlan
from orchestrator.app.fleet.sessions import FleetPrice
from orchestrator.app.fleet.status import FleetStatus, UserRow
from orchestrator.app.fleet.up import FleetUp
from orchestrator.cli.console import print_json, put, say, talk
from orchestrator.cli.views.fleet_usage import put_table
from orchestrator.domain.lease import watch_command
from orchestrator.domain.text.amounts import (
    size_text,
    span_text,
    ttl_text,
    usd_range,
    usd_range_text,
    usd_text,
)
from orchestrator.pricing.cost import Hourly


def show_price(price: FleetPrice) -> None:
    """Print the hourly price of the whole fleet, and when its ttl ends."""
    spec = price.spec
    head, node = _hour(price.head), _hour(price.node)
    unknown = (*price.head.unpriced, *price.node.unpriced)
    where = " (nothing is billed on the local cloud)" if price.unbilled else ""
    least = "at least " if unknown else ""
    total = head + price.nodes * node
    most = max(total, _hour(price.head, upper=True) + price.nodes * _hour(price.node, upper=True))
    say(f"Price: {least}{usd_range_text(total, most)} an hour{where}", style="bold")
    kind = f"{spec.tpu.type} {'spot' if spec.tpu.spot else 'on demand'}"
    say(
        f"  {_count(price.nodes, 'TPU')} {kind} in {price.node.zone}: "
        f"{usd_range_text(node, _hour(price.node, upper=True))} each; VM: {usd_text(head)}"
    )
    if not unknown:
        say(f"  {ttl_text(str(spec.watch.ttl), most * spec.watch.ttl / 3600)}")
    if unknown:
        say(f"  no price is known for: {', '.join(unknown)}")
    budget = spec.watch.budget_usd
    if budget is not None:
        say(f"  watch.budget_usd: `tpuctl fleet watch` ends the whole fleet at {budget:g} USD")


def show_plan(plan: FleetPlan, *, as_json: bool) -> None:
    """Print the price, and what the quota lacks."""
    found, spec, price = plan.fit, plan.price.spec, plan.price
    if as_json:
        body = {
            "name": spec.name, "nodes_max": price.nodes, "node_usd_hour": price.node.billed_usd,
            "vm_usd_hour": price.head.billed_usd, "ttl_s": float(spec.watch.ttl),
            "budget_usd": spec.watch.budget_usd, "quota": plan.quota, "quota_unknown": plan.unknown,
            "nodes_room": found.room if found else None, "quota_missing": found.quota_missing if found else None,
        }  # fmt: skip
        print_json("fleet-plan", body)
        return
    size = spec.fleet.min_idle if spec.fleet else None
    follows = "" if size is None else f", of which {size} are kept without tasks"
    put(f"{spec.name}: one VM, at most {price.nodes} nodes{follows}")
    show_price(price)
    if found is None:
        put(f"Quota: not known ({plan.unknown}). See: tpuctl doctor")
    elif found.quota_missing:
        where = f"{found.room} of {found.wanted} nodes in {', '.join(spec.tpu.zones)}"
        more = f"{found.quota_missing} more of {plan.quota} are needed: ask Google, or take fewer nodes"
        put(f"Quota: room for {where}. {more}")
    else:
        put(
            f"Quota: room for all {found.wanted} nodes ({plan.quota}); what other TPUs take of it is not counted"
        )


def _hour(price: Hourly, *, upper: bool = False) -> float:
    return sum((line.upper_usd if upper else line.billed_usd) or 0.0 for line in price.lines)


def show_up(done: FleetUp, *, as_json: bool) -> None:
    """Print which nodes are up."""
    if as_json:
        not_up = {name: error.message for name, error in done.nodes_not_up.items()}
        body = {
            "name": done.name, "bucket": done.bucket, "nodes_up": list(done.nodes_up), "nodes_not_up": not_up,
            "nodes_surplus": done.nodes_surplus,
        }  # fmt: skip
        print_json("fleet-up", body)
        return
    for name, error in done.nodes_not_up.items():
        say(f"{name} is not up: {error.message}", style="yellow")
    for name, message in done.nodes_surplus.items():
        say(f"{name} is too many, and stays: {message}; run: tpuctl fleet up", style="yellow")
    total = len(done.nodes_up) + len(done.nodes_not_up)
    if not total:
        text = f"{done.name}: the VM is up, and no task waits for a node. Next: tpuctl fleet submit JOB"
        watch = watch_command(on_vm=done.on_vm, fleet=True)
        say(f"{text}, and `{watch}`, which brings nodes when tasks wait", style="green")
        return
    goes_on = ", which asks on for the others, also in other zones" if done.nodes_not_up else ""
    then = watch_command(on_vm=done.on_vm, fleet=True)
    say(f"{done.name}: {len(done.nodes_up)} of {total} nodes are up. Next: {then}{goes_on}", style="green")


def show_status(status: FleetStatus, *, as_json: bool) -> None:
    """Print the VM, the nodes, and one line about the queue."""
    if as_json:
        nodes = [
            {"name": n.name, "tpu": n.tpu, "zone": n.zone, "slurm": n.slurm, "task": n.task}
            for n in status.nodes
        ]
        body = {
            "name": status.name, "vm": status.vm, "nodes": nodes, "tasks_waiting": status.tasks_waiting,
            "tasks_running": status.tasks_running, "usd": round(status.usd, 4),
            "upper_usd": round(status.upper_usd, 4), "message": status.message,
            "nodes_requested": status.nodes_requested, "nodes_max": status.size.nodes,
            "nodes_wanted": status.nodes_wanted,
            "node_usd_hour": status.node_usd_hour, "node_upper_usd_hour": status.node_upper_usd_hour,
            "users": [
                {**asdict(one), "usd": round(one.usd, 4), "upper_usd": round(one.upper_usd, 4)}
                for one in status.users
            ],
            "watcher_on": status.watcher_on,
        }  # fmt: skip
        print_json("fleet-status", body)
        return
    put(f"{status.name}: VM {status.vm}, {usd_range_text(status.usd, status.upper_usd)} so far")
    put_table([
        ("NODE", "TPU", "ZONE", "SLURM", "TASK"),
        *((n.name, n.tpu, n.zone or "-", n.slurm or "-", n.task or "-") for n in status.nodes),
    ])  # fmt: skip
    if status.users:
        put_table([
            ("USER", "SHARE", "USED", "RUNNING", "WAITING", "USD", "NOTE"),
            *(
                (
                    one.user, _share(one, status.users), span_text(one.node_seconds),
                    str(one.tasks_running or "-"), str(one.tasks_waiting or "-"), usd_range(one.usd, one.upper_usd),
                    _user_note(one),
                )
                for one in status.users
            ),
        ])  # fmt: skip
    put(f"Slurm does not answer: {status.message}" if status.message
        else f"tasks: {status.tasks_running} running, {status.tasks_waiting} waiting")  # fmt: skip
    if status.vm != "none":
        watched = {"vm": "on the VM", "elsewhere": "by a command elsewhere"}
        put(
            f"watched {watched[status.watcher_on]}"
            if status.watcher_on
            else f"no watcher runs: {watch_command(on_vm=status.watch_on_vm, fleet=True)}"
        )
    put(_size_text(status))


def _size_text(status: FleetStatus) -> str:
    """Return a line about the number of nodes and its reason, and the price of an idle node."""
    size = status.size
    count = f"{status.nodes_requested} of {size.nodes} nodes exist or are requested"
    if size.min_idle is None:
        message = f"{count}; all are kept, as fleet.min_idle is not set"
    elif status.nodes_wanted is None:
        message = f"{count}; none is deleted while Slurm does not answer"
    else:
        spare = f", {size.min_idle} kept to spare" if size.min_idle else ""
        wanted = f"{status.nodes_wanted} are wanted{spare}"
        message = f"{count}, {wanted}; nodes without a task are deleted after {size.idle}"
    low, high = status.node_usd_hour, status.node_upper_usd_hour
    price = "no known price" if low is None else f"{usd_range_text(low, high or low)} an hour"
    return f"{message}. An idle node costs {price}"


def _share(user: UserRow, users: Sequence[UserRow]) -> str:
    return f"{user.share / sum(one.share for one in users):.0%}"


def _user_note(user: UserRow) -> str:
    if user.over_budget:
        return f"budget of {user.budget_usd:g} USD spent"
    parts = [f"{user.nodes_max} nodes at most"] if user.nodes_max is not None else []
    parts += [f"budget {user.budget_usd:g} USD"] if user.budget_usd is not None else []
    return ", ".join(parts)


def show_down(down: FleetDown, *, as_json: bool) -> None:
    """Print that nothing is left; leftovers are in the error and in the JSON document."""
    if as_json:
        print_json(
            "fleet-down", {"name": down.name, "leftovers": down.leftovers, "data_remains": bool(down.bucket)}
        )
    elif not down.leftovers:
        where = f"; data is kept in gs://{down.bucket}" if down.bucket else ""
        say(f"nothing of {down.name} and its {down.nodes} nodes is left{where}", style="green")
        if down.idle_cloud_stopped:
            stays = "; what is in its buckets stays" if down.bucket else ""
            talk(f"the local cloud had nothing left to do and was stopped{stays}")


def show_submitted(done: Submitted, *, as_json: bool) -> None:
    """Print the job and its number of tasks, or for a dry run what would be sent."""
    if as_json:
        body = {"job": done.name, "tasks_count": done.tasks, "ended": done.ended}
        more = {"dry_run": True, "files_count": done.files, "bytes": done.bytes, "usd": done.usd}
        print_json("fleet-submit", {**body, **(more if done.dry_run else {})})
        return
    if done.dry_run:
        put(f"{done.name}: {_tasks(done.tasks)}; {done.files} files, {size_text(done.bytes)} would be sent")
        put("cost: not known without --takes TIME" if done.usd is None
            else f"cost: about {usd_text(done.usd)} on nodes that have no idle time")  # fmt: skip
        return
    ended = f", {done.ended} of them ended before" if done.ended else ""
    say(f"{done.name}: {_tasks(done.tasks)} submitted{ended}. Next: tpuctl fleet queue", style="green")


def _tasks(count: int) -> str:
    return _count(count, "task")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def show_cancelled(which: str, tasks: int, *, as_json: bool) -> None:
    """Print how many tasks were cancelled."""
    if as_json:
        print_json("fleet-cancel", {"job": which, "tasks_count": tasks})
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
    """Return a function that prints a log line, with the task's number if *numbered*."""

    def show(task: int, _: int, line: str) -> None:
        put(f"{task}: {line}" if numbered else line)

    return show


def say_no_log(which: str) -> None:
    """Report that nothing was printed yet."""
    say(f"{which} has no log yet; it comes with the first lines that the job prints")


def show_fetched(found: Sequence[FetchedTask], *, as_json: bool) -> None:
    """Print what was downloaded."""
    if as_json:
        body = [
            {"number": one.task, **_saved(one), "folder": str(one.folder)} for one in found
        ]  # fmt: skip
        print_json("fleet-fetch", {"tasks": body})
        return
    for one in found:
        what = f"step {one.number}" if one.kind == "step" else "what no checkpoint contains"
        put(f"task {one.task}: {what} is in {one.folder}")


def _saved(one: FetchedTask) -> dict[str, int]:
    return {"step": one.number} if one.kind == "step" else {"start": one.number}
