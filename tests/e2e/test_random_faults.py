"""
Runs with faults in an order that a seed decides: commands, agents, jobs and machines are killed.

Every line of the log must have the loss of a run without faults, and nothing may be left.
`TPUCTL_FAULT_SEEDS=100:120` runs other seeds.
"""

import os
import random
import re
import signal
import time
from collections.abc import Callable

import pytest

from orchestrator.emulator.machines.machine_python import base_interpreter, version_of
from tests.e2e.process_lab import ProcessLab, kill, losses
from tests.e2e.test_lifetime import unbroken
from tests.e2e.warm import RunningCommand

pytestmark = pytest.mark.e2e
STEPS, FAULTS = 150, 6
FIRST, END = (int(number) for number in os.environ.get("TPUCTL_FAULT_SEEDS", "0:2").split(":"))


class FaultyRun:
    """A deployment that trains, its watch, and the faults that may meet them."""

    def __init__(self, lab: ProcessLab, seed: int) -> None:
        self.lab, self.random = lab, random.Random(seed)
        self.watch: RunningCommand = lab.start("watch")

    def newest(self) -> str:
        """Return the newest TPU that has a machine."""
        found = [m["name"] for m in self.lab.machines() if m["running"]]
        names = {match[0] for name in found if (match := re.match(r"e2e-tpu-g\d+", name))}
        return max(names, key=lambda name: int(name.rpartition("g")[2]), default="")

    def step(self) -> tuple[int, int, int]:
        """Return TPU, attempt and step of worker 0's newest report, for an order in which a run only grows."""
        first = next(iter(self.lab.heartbeats()), None) or {}
        return first.get("incarnation") or 0, first.get("attempt") or 0, first.get("step") or 0

    def notice(self) -> None:
        """Take the newest TPU away with a notice."""
        if name := self.newest():
            self.lab.tpuctl("local", "preempt", name, expect=None)

    def preemption(self) -> None:
        """Take it away without one; the answer to the next create may be lost as well."""
        if self.random.random() < 0.5:
            self.lab.tpuctl("local", "fault", "tpu.nodes.create", "drop-answer")
        if name := self.newest():
            self.lab.tpuctl("local", "preempt", name, "--now", expect=None)

    def watch_is_killed(self) -> None:
        """Kill the watch, now or in the middle of a recovery, and begin another one."""
        if self.random.random() < 0.5:
            self.random.choice([self.notice, self.preemption])()
            time.sleep(self.random.uniform(0, 3))  # a moment of the recovery that no state names
        self.watch.kill()
        self.watch.wait(30)
        self.watch = self.lab.start("watch")

    def agent_is_killed(self) -> None:
        """Kill an agent; cron starts the next one."""
        self._kill_one(self.lab.agents())

    def job_is_killed(self) -> None:
        """Kill a job, as the system does that is out of memory."""
        self._kill_one(list(self.lab.jobs()))

    def _kill_one(self, pids: list[int]) -> None:
        if pids:
            kill(self.random.choice(pids))

    def up_is_repeated(self) -> None:
        """Run the first command again beside the watch."""
        self.lab.tpuctl("up", expect=None)


KINDS: tuple[Callable[[FaultyRun], None], ...] = (
    FaultyRun.notice, FaultyRun.preemption, FaultyRun.watch_is_killed, FaultyRun.agent_is_killed,
    FaultyRun.job_is_killed, FaultyRun.up_is_repeated,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_a_life_with_faults_in_any_order_ends_as_one_without(lab, seed):
    """What is trained is trained once, with the same result, and `down` finds everything."""
    lab.use_example(steps=STEPS)
    # The example reads the sources of its Python, so a run without faults must have the same.
    lab.tpuctl("local", "start", "--notice", "5", "--python", version_of(base_interpreter()))
    first = lab.start("up")
    if seed % 2:
        lab.wait_for("a machine", lab.machines)
        first.kill()
        first.wait(30)
        first = lab.start("up")
    lab.end(first)
    run = FaultyRun(lab, seed)
    for _ in range(FAULTS):
        before = run.step()
        lab.wait_for("progress", lambda before=before: run.step() > before and lab.jobs())
        run.random.choice(KINDS)(run)
        if run.watch.poll() is not None:
            run.watch = lab.start("watch")
    lab.hurry()
    lab.end(run.watch, seconds=240)
    shown, whole = losses(lab.tpuctl("logs").out), unbroken(lab)
    assert STEPS in shown
    # Not to the last digit: see test_lifetime.
    expected = {step: float(whole[step]) for step in shown}
    assert {step: float(loss) for step, loss in shown.items()} == pytest.approx(expected, abs=2e-5)
    down = lab.start("down", "--yes", "--delete-data")
    down.send_signal(signal.SIGINT if seed % 2 else signal.SIGCONT)
    down.wait(60)
    lab.tpuctl("down", "--yes", "--delete-data")
    assert (lab.bucket(), [m for m in lab.machines() if m["running"]]) == ("", [])
