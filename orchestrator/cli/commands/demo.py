"""tpuctl demo: the life of a deployment on the local cloud, by the public commands only."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import subprocess

    from orchestrator.app.rehearsal.stage import Stage

EXAMPLE = "numpy-lm"
LIMIT = 240.0
"""Seconds after which the demo gives up on a scene; the whole of it usually takes less than 60."""
FIRST, BETWEEN, LAST = 60, 100, 340
"""The step of the first preemption, the steps to the second, and the step that it comes at at the latest."""
POLL = ("--set", "watch.poll=1s")
"""Looking every second instead of every 15 makes a short story shorter."""


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the local cloud and the folder, to look around in.")
@click.option("--hosts", type=click.Choice(["process", "namespace"]), default="process", show_default=True)
def command(keep: bool, hosts: str) -> None:
    """
    Show the whole life of a deployment: plan, up, training, two preemptions, done, down.

    Everything is real but the cloud: machines are processes of this computer, the training runs, the
    kills are SIGKILL. One preemption comes with notice, one without. It takes about a minute, needs no
    account and leaves nothing behind.
    """
    from orchestrator.app.rehearsal.stage import Stage, interruptible

    folder = Path(tempfile.mkdtemp(prefix="tpuctl-demo-"))
    stage = Stage(folder, folder / "work")
    begun = time.monotonic()
    with interruptible():
        try:
            _play(stage, hosts)
        finally:
            left = [] if keep else clear(stage)
    if keep:
        stage.say(f"kept: {stage.work}. To look around, first type:")
        stage.say(f"cd {stage.work}; export TPUCTL_LOCAL_DIR={folder / 'cloud'} TPUCTL_CLOUD=local")
    elif left:
        raise click.exceptions.Exit(5)
    else:
        stage.say(f"Nothing is left: no process, no mount, no file. {time.monotonic() - begun:.0f} s in all.")
        stage.say("Your own job: tpuctl init, then tpuctl plan.")


def clear(stage: "Stage") -> list[str]:
    """Remove the local cloud and the folder whatever happened; say and return what is left."""
    from orchestrator.app.rehearsal.stage import undisturbed

    with undisturbed():
        stage.clear()
        left = stage.leftovers()
        shutil.rmtree(stage.folder, ignore_errors=True)
        left += [str(stage.folder)] if stage.folder.exists() else []
    if left:
        stage.say(f"left behind: {', '.join(left)}")
    return left


def _play(stage: "Stage", hosts: str) -> None:
    """Run the scenes in order; a command that fails ends the demo with its exit code."""
    stage.warm_up()
    stage.scene("1. A deployment file, and a training script that you can edit")
    stage.run("init", "--recipe", EXAMPLE, str(stage.work))
    stage.scene("2. What would be created, where, and at what price: no account, no network")
    stage.run("plan")
    stage.scene("3. Create it, on a cloud that runs on this computer")
    stage.run("local", "start", "--hosts", hosts)
    stage.run("up", *POLL)
    stage.scene("4. Train. The machine is taken away twice: with notice, then by SIGKILL")
    watcher = stage.start("watch", *POLL)
    try:
        _disturb(stage, watcher)
        code = watcher.wait(timeout=LIMIT)
    finally:
        stage.end(watcher)
    if code != 0:
        raise click.exceptions.Exit(code)
    stage.scene("5. Take it down, data included, and prove that nothing is left")
    stage.run("down", "--yes", "--delete-data")


def _disturb(stage: "Stage", watcher: "subprocess.Popen[bytes]") -> None:
    """Take the TPU away twice while the job trains."""
    first, step = stage.wait_for_step(watcher, FIRST, LIMIT)
    if first:
        stage.run_beside("local", "preempt", first)
        second, _ = stage.wait_for_step(watcher, min(step + BETWEEN, LAST), LIMIT, other_than=first)
        if second:
            stage.run_beside("local", "preempt", second, "--no-notice")
            return
    stage.say("The job was done before its machine could be taken away: this computer is very busy.")
