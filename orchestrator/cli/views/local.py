"""Show the local cloud and the results of its commands."""

import shlex
from typing import Any

import click

from orchestrator.app.local import InjectedFaults, LocalStart, LocalStop, OddState, TakenAway
from orchestrator.cli.console import print_json, say, talk
from orchestrator.domain.text.suggest import join


def show_start(found: LocalStart, *, as_json: bool) -> None:
    """Print its address, and whether it already ran."""
    if as_json:
        print_json("local", {"endpoint": found.endpoint, "project": found.project, "started": found.fresh})
    elif found.fresh:
        say(f"the local cloud runs at {found.endpoint}, machines: {found.machines}")
    else:
        say(f"it runs already at {found.endpoint}; its settings did not change (`tpuctl local stop` first)")


def show_status(body: dict[str, Any], *, as_json: bool) -> None:
    """Print machines, faults and costs."""
    if as_json:
        print_json("local", body)
        return
    click.echo(f"running at {body['endpoint']}" if body["running"] else "not running")
    for image in body.get("images", []):
        other = image["python"] != image["python_of_image"]
        theirs = f" (Google's image has {image['python_of_image']})" if other else ""
        click.echo(f"{image['kind']} machines: {image['image']}, Python {image['python']}{theirs}")
    for line in _machine_lines(body):
        click.echo(line)
    for queued in body.get("queued", []):
        click.echo(f"queued resource {queued['name']}  {queued['zone']}  {queued['state']}")
    for fault in body.get("unused_faults", []):
        click.echo(f"fault not met yet: {fault['method']} {fault['fault']}")
    if body.get("bill"):
        usd = sum(line["usd"] or 0 for line in body["bill"])
        # Another sum than that of `cost`, which does not know which minutes Google leaves out.
        click.echo(f"it would have cost {usd:.4f} USD at the lowest prices: TPUs, VMs and disks of all")
        click.echo("deployments, without what was preempted in its first minute, which is free.")
        click.echo("`tpuctl cost` counts that and storage too, for one deployment")


def _machine_lines(body: dict[str, Any]) -> list[str]:
    """Return a line for each TPU and VM, with its state in the API, and below it one for each of its machines."""
    machines = {one["id"]: one for one in body.get("machines", [])}
    lines = []
    for kind, owner in [("TPU", tpu) for tpu in body.get("tpus", [])] + [
        ("VM", vm) for vm in body.get("vms", [])
    ]:
        lines.append(f"{kind} {owner['name']}  {owner['zone']}  {owner['state']}")
        own = [machines[one] for one in owner["machines"] if one in machines]
        for index, machine in enumerate(own):
            which = f"worker {index}: " if kind == "TPU" else ""
            state = "running" if machine["running"] else "stopped"
            lines.append(f"  {which}{machine['name']}  {machine['address']}  {state}")
        lines += [] if own else ["  no machine"]
        for one in owner["machines"]:
            machines.pop(one, None)
    # Of a local cloud that an earlier version has started, which names no owner.
    return lines + [f"{one['name']}  {one['address']}" for one in machines.values()]


def show_environment(variables: dict[str, str], *, as_json: bool) -> None:
    """Print variables as shell commands."""
    if as_json:
        print_json("local-env", {"variables": variables})
        return
    for name, value in variables.items():
        # A shell evaluates stdout, so nothing else may be printed there.
        click.echo(f"export {name}={shlex.quote(value)}")


def show_stop(found: LocalStop, *, as_json: bool) -> None:
    """Print that the local cloud does not run any more, or did not before."""
    if as_json:
        print_json("local", found.as_dict())
    elif found.emptied:
        say("the local cloud is gone with everything in it")
    else:
        say("the local cloud is stopped" if found.ran else "the local cloud was not running")
        if found.training:
            machines = f"the machines of {join(found.training, 'and')} stopped too"
            talk(f"  {machines}; the next command on it starts them and the job again")


def show_taken_away(found: TakenAway, *, as_json: bool) -> None:
    """Print what was preempted or killed."""
    if as_json:
        print_json("local", found.as_dict())
    elif found.worker is not None:
        say(f"worker {found.worker} of {found.name} was killed")
    else:
        say(f"preemption notice sent to {found.name}" if found.notice else f"{found.name} was preempted")


def show_fault(found: InjectedFaults | OddState, *, as_json: bool) -> None:
    """Print which calls will fail, or which state something is in now."""
    if as_json:
        print_json("local", found.as_dict())
    elif isinstance(found, OddState):
        say(f"{found.name} is now {found.state}")
    else:
        say(f"the next {len(found.faults)} calls of {found.method} will fail")
