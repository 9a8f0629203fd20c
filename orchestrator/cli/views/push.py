"""Show the result of a push."""

from dataclasses import asdict

from orchestrator.app.push import Pushed, PushResult
from orchestrator.cli.console import print_json, put, say
from orchestrator.planning.failing import JOB_FAILS

WORDS = {
    PushResult.UNCHANGED: "no changes: the job runs this code with these settings",
    PushResult.RUNNING: "the job runs the new {news}",
    PushResult.DONE: "the job is done with the new {news}; next: tpuctl watch, which deletes the machines",
    PushResult.RECORDED: "the new {news} will be on the next machine (`tpuctl watch` makes one)",
}


def show(pushed: Pushed, *, as_json: bool) -> None:
    """Print the result; a dry run's plan goes to stdout."""
    if as_json:
        print_json("push", {**asdict(pushed), "plan": list(pushed.plan), "result": pushed.result.value})
    elif pushed.result is PushResult.PLANNED:
        for line in pushed.plan:
            put(f"~ {line}")
    elif pushed.failing:
        say(f"{JOB_FAILS} with the new {pushed.news}: {pushed.failing}. Next: tpuctl logs", style="yellow")
    else:
        say(WORDS[pushed.result].format(news=pushed.news))
