"""Play a deployment on its own local cloud, with public commands only."""

import tempfile
import time
from pathlib import Path
from subprocess import Popen

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.sandbox import CommandFailedError, Sandbox, interruptible
from orchestrator.config.load import FILE_NAME

EXAMPLE = "numpy-lm"
TIMEOUT = 240.0
"""Seconds after which the demo gives up on a scene; normally the whole of it takes about 35."""
FIRST, BETWEEN, LAST = 60, 100, 340
"""The step of the first preemption, the steps until the second, and the latest step for the second."""
SHORTER = ("-e", "s/poll: 15s/poll: 1s/", "-e", 's/"0.05"/"0.025"/')
"""Edits of the deployment file that shorten the demo: a look at the cloud each second, steps of half the time."""
LEFTOVERS = 5


def play_demo(machines: str, reporter: Reporter, *, keep: bool) -> int:
    """Play all scenes, then clean up unless *keep*; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="tpuctl-demo-"))
    sandbox = Sandbox(folder, folder / "work", reporter)
    begun = time.monotonic()
    code, leftovers = 0, []
    with interruptible():
        try:
            _play(sandbox, machines)
        except CommandFailedError as error:
            code = error.code
        finally:
            # Also after Ctrl-C: the machines are processes of this computer and would keep running.
            leftovers = sandbox.keep() if keep else sandbox.clear()
    if code:
        return code
    if keep:
        sandbox.say(f"kept: {sandbox.work}. To look around, first type:")
        sandbox.say(f"cd {sandbox.work}; export TPUCTL_LOCAL_DIR={sandbox.cloud} TPUCTL_CLOUD=local")
    elif leftovers:
        return LEFTOVERS
    else:
        sandbox.say(
            f"Nothing is left: no process, no mount, no file. {time.monotonic() - begun:.0f} s in all."
        )
        sandbox.say("Your own job: `tpuctl init`, then `tpuctl plan`.")
    return 0


def _play(sandbox: Sandbox, machines: str) -> None:
    """Run the scenes in order. Raise CommandFailedError for the first command that fails."""
    sandbox.warm_up()
    sandbox.scene("1. A deployment file, and a training script that you can edit")
    sandbox.run("init", "--recipe", EXAMPLE, str(sandbox.work))
    sandbox.run_program("sed", "-i", *SHORTER, FILE_NAME)
    sandbox.scene("2. What would be created, where, and at what price: no account, no network")
    sandbox.run("plan")
    sandbox.scene("3. Create it, on a cloud that runs on this computer")
    sandbox.run("local", "start", "--machines", machines)
    sandbox.run("up")
    sandbox.scene("4. Train. The machine is taken away twice: with notice, then by SIGKILL")
    watcher = sandbox.start("watch")
    try:
        _disturb(sandbox, watcher)
        code = watcher.wait(timeout=TIMEOUT)
    finally:
        sandbox.end(watcher)
    if code != 0:
        raise CommandFailedError(code)
    sandbox.scene("5. Take it down, data included, and prove that nothing is left")
    sandbox.run("down", "--yes", "--delete-data")


def _disturb(sandbox: Sandbox, watcher: "Popen[bytes]") -> None:
    """Preempt the TPU twice while the job trains."""
    first, step = sandbox.wait_for_step(watcher, FIRST, TIMEOUT)
    if first:
        sandbox.run_beside("local", "preempt", first)
        second, _ = sandbox.wait_for_step(watcher, min(step + BETWEEN, LAST), TIMEOUT, other_than=first)
        if second:
            sandbox.run_beside("local", "preempt", second, "--now")
            return
    sandbox.say("The job was done before its machine could be taken away: this computer is very busy.")
