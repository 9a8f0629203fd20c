"""Show how a watch ended, and where the loop runs."""

from collections.abc import Sequence
from textwrap import wrap

from orchestrator.app.loop.on_vm import LoopOnVm
from orchestrator.app.loop.watch import Watched
from orchestrator.app.loop.watch_all import WatchResult
from orchestrator.cli.console import print_json, say, talk
from orchestrator.cli.views.summary import WIDTH, show_summary
from orchestrator.domain.status import DeploymentState
from orchestrator.domain.text.hints import OWN_STEPS

_NEXT = "  next:  "


def show(done: Watched, *, unbilled: bool, as_json: bool) -> None:
    """Print the end of the watch; as text with the next step."""
    if done.stopped_by_user:
        say("stopped watching; everything keeps running, but a preempted TPU is not replaced meanwhile")
        talk("  next:  go on with `tpuctl watch`, or delete the machines with `tpuctl down`")
    elif done.summary is None:
        outcome = done.outcome.phrase if done.outcome else ""
        say(f"the deployment is over ({outcome}); `tpuctl up` opens it again")
    elif as_json:
        print_json("watch", {"outcome": "done", "message": done.message, "summary": done.summary.as_dict()})
    else:
        say(f"done: {done.message}", style="bold green")
        show_summary(done.summary, unbilled=unbilled)
        talk(f"{_NEXT}`tpuctl checkpoints fetch` copies the model to this computer")
        talk("         `tpuctl down` deletes what is left")
        further = f"to train further, raise job.target_steps {OWN_STEPS}, then: tpuctl up"
        for line in wrap(further, WIDTH - len(_NEXT)):
            talk(f"{' ' * len(_NEXT)}{line}")


def say_names(names: Sequence[str]) -> None:
    """Print which deployments are watched."""
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    talk(f"watching {len(names)}: {shown}")


def show_all(ended: Sequence[WatchResult], *, stopped: bool, as_json: bool, again: str) -> int:
    """Print how each watch ended; return the exit code of the worst end, or that of an interrupt."""
    rows = [
        {"name": one.name, "outcome": one.outcome.value if one.outcome else None, "message": one.message,
         "error": one.error.as_dict() if one.error else None}
        for one in ended
    ]  # fmt: skip
    if as_json:
        print_json("watch-all", {"stopped": stopped, "deployments": rows})
    for one in () if as_json else ended:
        if one.error is None:
            say(f"{one.name}: {one.outcome.phrase if one.outcome else ''}: {one.message}", style="bold green")
            continue
        say(f"{one.name}: {one.error.message} ({one.error.code})", style="red")
        say(f"  next:  {one.error.hint}" if one.error.hint else "  next:  tpuctl explain")
    if stopped and not as_json:
        say("stopped watching; everything keeps running, but a preempted TPU is not replaced meanwhile")
        talk(f"  next:  go on with `{again}`")
    worst = max((one.error.exit_code for one in ended if one.error), default=0)
    return worst or (130 if stopped else 0)


def show_on_vm(found: LoopOnVm, *, as_json: bool, command: str) -> None:
    """Print whether the loop of *command* now runs on the VM."""
    if as_json:
        more = {"digest": found.digest, "state": found.state.value if found.state else None}
        body = {"vm": found.vm, "running": found.running, "changes_count": found.changes}
        print_json(
            "watch-on-vm", {**body, **{key: value for key, value in more.items() if value is not None}}
        )
    elif not found.running:
        goes_on = "the tasks continue" if "fleet" in command else _without_loop(found.state)
        say(f"no loop runs on {found.vm} any more; {goes_on}")
        talk(f"  next:  go on here with `{command}`, or there with `{command} --on-vm`")
    elif found.changes:
        say(f"the loop runs on {found.vm}; this computer is not needed any more", style="green")
        talk(f"  next:  {command.removesuffix('watch')}status, logs and down work from anywhere")
        talk(f"         stop it there: {command} --on-vm --stop")
    else:
        say(f"no changes: the loop runs on {found.vm}")


def _without_loop(state: DeploymentState | None) -> str:
    """Return what becomes of a job in this state that nothing watches."""
    if state is None or state is DeploymentState.UNKNOWN:
        return "whether the job runs is not known: see `tpuctl status`"
    if state.without_tpu:
        return "no TPU trains now, and none is requested until a watch runs"
    if state is DeploymentState.PREEMPTING:
        return "its TPU is being preempted, and is not replaced until a watch runs"
    later = "a preempted TPU is not replaced until a watch runs"
    if state in {DeploymentState.STARTING, DeploymentState.RESUMING}:
        return f"the job starts when its machine is ready; {later}"
    return (
        f"the job continues; {later}"
        if state is DeploymentState.RUNNING
        else f"the deployment: {state.phrase}"
    )
