"""Show how `up` ended, what stays as it is, and what comes next."""

from orchestrator.app.up import Goal, Up
from orchestrator.cli.console import print_json, say


def show(done: Up, goal: Goal, *, as_json: bool) -> None:
    """Print what it made, for people or as JSON; what differs from the file and stays is said to both."""
    for text in done.drift:
        say(f"{text}.", style="yellow")
    if as_json:
        outcome = done.outcome.value if done.outcome else "running"
        body = {"name": done.name, "bucket": done.bucket, "changes": done.changes, "outcome": outcome}
        print_json("up", body)
    elif done.outcome is not None:
        say(f"nothing to do: the job is done ({done.reason})")
    elif goal is Goal.MACHINE_ROOM:
        say(f"{done.name}: bucket and VM are there, no TPU was asked for. Next: tpuctl up", style="green")
    elif done.changes == 0:
        say("no changes: bucket, VM, TPU and job are as tpuctl.yaml wants them")
    else:
        say(f"{done.name} is up. Next: tpuctl watch{' --on-vm' if done.on_vm else ''}", style="green")
