"""
tpuctl demo: the life of a deployment on the local cloud, by the public commands only.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.cli.demo_stage import Stage

EXAMPLE = "numpy-lm"
LIMIT = 240.0
"""Seconds after which the demo gives up; it usually takes less than 60."""


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the local cloud and the folder, to look around in.")
@click.option("--hosts", type=click.Choice(["process", "namespace"]), default="process", show_default=True)
def command(keep: bool, hosts: str) -> None:
    """
    Show the whole life of a deployment: plan, up, training, a preemption with notice, one without, done, down.

    Everything is real but the cloud: machines are processes of this computer, the training runs, the
    kills are SIGKILL. It takes about a minute, needs no account and leaves nothing behind.
    """
    from orchestrator.cli.demo_stage import Stage

    folder = Path(tempfile.mkdtemp(prefix="tpuctl-demo-"))
    stage = Stage(folder)
    begun = time.monotonic()
    try:
        _play(stage, hosts)
    finally:
        if not keep:
            stage.clear()
    if keep:
        stage.say(f"kept: {folder}. Look around with: TPUCTL_LOCAL_DIR={folder / 'cloud'} TPUCTL_CLOUD=local")
        return
    left = stage.leftovers()
    shutil.rmtree(folder, ignore_errors=True)
    if left or folder.exists():
        stage.say(f"left behind: {', '.join(left) or folder}")
        raise click.exceptions.Exit(5)
    stage.say(f"nothing is left: no process, no mount, no file. {time.monotonic() - begun:.0f} s in all.")


def _play(stage: "Stage", hosts: str) -> None:
    """
    Run the scenes in order; a command that fails ends the demo with its exit code.
    """
    stage.scene("A deployment file and a training script anyone can edit")
    stage.run("init", "--recipe", EXAMPLE, str(stage.work))
    stage.scene("What would be created, where, and at what price: needs no account and no network")
    stage.run("plan")
    stage.scene("The local cloud, and the deployment on it")
    stage.run("local", "start", "--hosts", hosts)
    stage.run("up")
    stage.scene("Watch it through a preemption with notice and a SIGKILL without")
    watcher = stage.start("watch")
    try:
        first = stage.wait_for_step(watcher, 60, LIMIT)
        stage.run("local", "preempt", first)
        second = stage.wait_for_step(watcher, 180, LIMIT, other_than=first)
        stage.run("local", "preempt", second, "--no-notice")
        code = watcher.wait(timeout=LIMIT)
    finally:
        stage.end(watcher)
    if code != 0:
        raise click.exceptions.Exit(code)
    stage.scene("Take it down, data included, and prove that nothing is left")
    stage.run("down", "--yes", "--delete-data")
    sys.stdout.flush()
