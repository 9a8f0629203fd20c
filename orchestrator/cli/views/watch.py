"""Show how a watch ended, and where the loop runs."""

from dataclasses import asdict

from orchestrator.app.hand_over import Moved
from orchestrator.app.watch import Watched
from orchestrator.cli.console import print_json, say
from orchestrator.cli.views.summary import show_summary


def show(done: Watched, *, rehearsed: bool, as_json: bool) -> None:
    """Print how it ended, for people with what comes next."""
    if done.stopped_by_user:
        say("stopped watching; everything keeps running, but a preempted TPU is not replaced meanwhile")
        say("  next:  go on with `tpuctl watch`, or remove it all with `tpuctl down`")
    elif done.summary is None:
        outcome = done.outcome.value if done.outcome else ""
        say(f"the deployment is over ({outcome}); `tpuctl up` opens it again")
    elif as_json:
        print_json("watch", {"outcome": "done", "reason": done.reason, "summary": done.summary.as_dict()})
    else:
        say(f"done: {done.reason}", style="bold green")
        show_summary(done.summary, rehearsed=rehearsed)
        say("  next:  `tpuctl fetch` copies the model to this computer, `tpuctl down` deletes what is left")


def show_moved(moved: Moved, *, as_json: bool) -> None:
    """Print whether the loop runs on the VM now."""
    if as_json:
        print_json("watch-on-vm", {key: value for key, value in asdict(moved).items() if value is not None})
    elif not moved.running:
        say(f"no loop runs on {moved.vm} any more; the job goes on")
        say("  next:  go on here with `tpuctl watch`, or there with `tpuctl watch --on-vm`")
    elif moved.changes:
        say(f"the loop runs on {moved.vm}; this computer is not needed any more", style="green")
        say("  next:  tpuctl status, logs and down work from anywhere")
        say("         take it back: tpuctl watch --on-vm --stop")
    else:
        say(f"no changes: the loop runs on {moved.vm}")
