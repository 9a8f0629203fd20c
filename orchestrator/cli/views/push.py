"""Show the result of a push."""

from dataclasses import asdict

from orchestrator.app.push import Pushed, PushOutcome
from orchestrator.cli.console import print_json, put, say

WORDS = {
    PushOutcome.UNCHANGED: "no changes: the job runs this code with these settings",
    PushOutcome.RUNNING: "the job runs the new code",
    PushOutcome.DONE: "the job is done with the new code; next: tpuctl watch, which deletes the machines",
    PushOutcome.RECORDED: "the new code is in the bucket; the next machine takes it (`tpuctl watch` makes one)",
}


def show(pushed: Pushed, *, as_json: bool) -> None:
    """Print the result; a dry run's plan goes to stdout."""
    if as_json:
        print_json("push", {**asdict(pushed), "plan": list(pushed.plan), "outcome": pushed.outcome.value})
    elif pushed.outcome is PushOutcome.PLANNED:
        for line in pushed.plan:
            put(f"~ {line}")
    else:
        say(WORDS[pushed.outcome])
