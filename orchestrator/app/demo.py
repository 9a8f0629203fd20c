"""Play the life of a deployment on its own local cloud, with public commands only."""

import tempfile
import time
from pathlib import Path
from subprocess import Popen

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.stage import CommandFailedError, Stage, interruptible

EXAMPLE = "numpy-lm"
LIMIT = 240.0
"""Seconds after which the demo gives up on a scene; normally the whole of it takes less than 60."""
FIRST, BETWEEN, LAST = 60, 100, 340
"""The step of the first preemption, the steps until the second, and the latest step for the second."""
POLL = ("--set", "watch.poll=1s")
"""Polls every second instead of every 15, to shorten the demo."""
LEFTOVERS = 5


def play_demo(hosts: str, reporter: Reporter, *, keep: bool) -> int:
    """Play all scenes, then clean up unless *keep*; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="tpuctl-demo-"))
    stage = Stage(folder, folder / "work", reporter)
    begun = time.monotonic()
    code, leftovers = 0, []
    with interruptible():
        try:
            _play(stage, hosts)
        except CommandFailedError as error:
            code = error.code
        finally:
            # Also after Ctrl-C: the machines are processes of this computer and would keep running.
            leftovers = stage.keep() if keep else stage.clear()
    if code:
        return code
    if keep:
        stage.say(f"kept: {stage.work}. To look around, first type:")
        stage.say(f"cd {stage.work}; export TPUCTL_LOCAL_DIR={stage.cloud} TPUCTL_CLOUD=local")
    elif leftovers:
        return LEFTOVERS
    else:
        stage.say(f"Nothing is left: no process, no mount, no file. {time.monotonic() - begun:.0f} s in all.")
        stage.say("Your own job: tpuctl init, then tpuctl plan.")
    return 0


def _play(stage: Stage, hosts: str) -> None:
    """Run the scenes in order. Raise CommandFailedError for the first command that fails."""
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
        raise CommandFailedError(code)
    stage.scene("5. Take it down, data included, and prove that nothing is left")
    stage.run("down", "--yes", "--delete-data")


def _disturb(stage: Stage, watcher: "Popen[bytes]") -> None:
    """Preempt the TPU twice while the job trains."""
    first, step = stage.wait_for_step(watcher, FIRST, LIMIT)
    if first:
        stage.run_beside("local", "preempt", first)
        second, _ = stage.wait_for_step(watcher, min(step + BETWEEN, LAST), LIMIT, other_than=first)
        if second:
            stage.run_beside("local", "preempt", second, "--now")
            return
    stage.say("The job was done before its machine could be taken away: this computer is very busy.")
