"""
What tpuctl reads from Slurm and sends to it: the same cases on the model of tests/kit and on Slurm itself.

The real one is the distribution's packages with slurm.sh, as on a fleet's VM, with one node on this computer.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.domain.remote import Host, RunResult
from orchestrator.domain.spec import JobSpec
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.planning.fleet.gate import Correction
from orchestrator.planning.fleet.tasks import After, Submission
from tests.kit.real_slurm import RealSlurm, settings
from tests.kit.slurm import SlurmModel, words_of

NODE, OTHER = "demo-001", "demo-002"
SCRIPT = "#!/bin/bash\nsleep 600\nsleep 600\n"


@dataclass
class Stub:
    """Be slurmd for the model: it answers, and what it was given to run runs."""

    tasks: list = field(default_factory=list)
    alive: bool = True

    def answers(self):
        return self.alive

    def runs(self, task):
        return task in self.tasks

    def start(self, task):
        self.tasks.append(task)

    def stop(self, task, why):
        self.tasks.remove(task)

    def stop_all(self, why):
        self.tasks.clear()


class Model:
    """The model of tests/kit, behind the same calls."""

    def __init__(self):
        self.clock = VirtualClock()
        self.slurm = SlurmModel(self.clock)
        self.slurm.files["settings"] = settings(2, 23_817)
        self.slurm.run(["head"])

    def put(self, hosts, data, target, mode):
        self.slurm.files[target.rpartition("/")[2]] = data.decode()

    def run_elevated(self, hosts, script, deadline):
        return [RunResult(0, self.slurm.run(words_of(script)))]

    def join(self, incarnation):
        """Let a machine of the node come."""
        self.stub = Stub()
        self.slurm.register(NODE, incarnation, self.stub)

    def leave(self):
        """Kill the node's machine."""
        self.stub.alive = False

    def until(self, holds, what):
        """Wait until *holds*."""
        for _ in range(60):
            if holds():
                return
            self.clock.advance(1)
            self.slurm.schedule()
        pytest.fail(f"never: {what}")

    def end(self):
        """End all of it."""


class Real(RealSlurm):
    """Slurm itself, with the one node that joins."""

    def join(self, incarnation):
        """Let a machine of the node come."""
        super().join(NODE, incarnation)

    def leave(self, node=NODE):
        """Kill the node's machine; a task's script is a program of its own."""
        super().leave(node)
        names = [(Path("/proc") / str(pid) / "comm").read_text() for pid, _ in self._processes()]
        assert "slurm_script\n" not in names


@pytest.fixture(params=["model", pytest.param("real", marks=pytest.mark.e2e)])
def machine(request, tmp_path):
    """Give Slurm's controller before anything was sent to it."""
    if request.param == "real" and not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip("no packages of Slurm without apt-get and dpkg")
    made = Model() if request.param == "model" else Real(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def slurm(machine):
    """Give the adapter of the product to it."""
    return Slurm(machine, Host("vm", "127.0.0.1", ()))


def submission(name, tasks=3):
    """Return a job."""
    return Submission(name, ({},) * tasks, JobSpec("x"), "b", SCRIPT, 0.0)


def submit(slurm, name, numbers, **options):
    """Queue tasks of a job; return the number of its array."""
    slurm.submit(submission(name), numbers, ["europe-west4-b"], **options)
    return next(one.array for one in slurm.queue() if one.job == name)


def rows(slurm, *fields):
    """Return the queue by what the product reads."""
    return sorted(tuple(getattr(one, field) for field in ("job", "number", *fields)) for one in slurm.queue())


def test_the_queue_holds_and_orders_what_was_requested(machine, slurm):
    """Twice the same tasks are queued once; held, released, made to wait for another job, and cancelled."""
    first = submit(slurm, "one", [0, 1])
    submit(slurm, "one", [0, 1, 2])
    plain = [("one", number, "PENDING", 0, "", False, ()) for number in range(3)]
    fields = ("state", "restarts", "node", "held", "after")
    assert rows(slurm, *fields) == plain
    assert {one.slurm_id for one in slurm.queue()} >= {f"{first}_0", f"{first}_1"}
    arrays = tuple(sorted({one.array for one in slurm.queue()}))
    slurm.correct(Correction("hold", arrays))
    assert {one.held for one in slurm.queue()} == {True}
    slurm.correct(Correction("release", arrays))
    assert rows(slurm, *fields) == plain
    second = submit(slurm, "two", [0], held=True)
    assert [one.held for one in slurm.queue() if one.job == "two"] == [True]
    slurm.correct(Correction("after", (second,), (After("afterok", first),)))
    slurm.correct(Correction("release", (second,)))
    assert [(one.held, one.after) for one in slurm.queue() if one.job == "two"] == [
        (False, (After("afterok", first),))
    ]
    third = submit(slurm, "three", [0], after=(After("afterany", second),))
    assert [one.after for one in slurm.queue() if one.job == "three"] == [(After("afterany", second),)]
    slurm.correct(Correction("after", (third,), ()))
    assert [one.after for one in slurm.queue() if one.job == "three"] == [()]
    slurm.cancel([one for one in slurm.queue() if one.job != "two"])
    machine.until(lambda: {one.job for one in slurm.queue()} == {"two"}, "two is left")
    # A cancelled task is no good end: who waits for one waits on.
    assert [(one.state, one.after) for one in slurm.queue()] == [("PENDING", (After("afterok", first),))]


def running(slurm):
    """Return the nodes of the running tasks."""
    return [one.node for one in slurm.queue() if one.state == "RUNNING"]


def test_a_node_runs_a_task_is_drained_lost_and_comes_back(machine, slurm):
    """Only the machine that is named is lost; the mark of a drained one keeps its task, and new ones away."""
    assert (set(slurm.nodes()), slurm.node_states()[NODE].has_task) == ({NODE, OTHER}, False)
    machine.join(1)
    machine.until(lambda: "IDLE" in slurm.node_states()[NODE].states, "the node is idle")
    submit(slurm, "one", [0, 1])
    machine.until(lambda: running(slurm) == [NODE], "the task runs")
    assert slurm.node_states()[NODE].has_task
    held = slurm.drain(NODE, 1)
    assert (held.going, held.has_task) == (True, True)
    slurm.undrain(NODE)
    assert not slurm.node_states()[NODE].going
    slurm.lost(NODE, 7)
    assert [one.restarts for one in slurm.queue()] == [0, 0]
    machine.leave()
    slurm.lost(NODE, 1)
    machine.until(lambda: rows(slurm, "state", "restarts", "node") == [
        ("one", 0, "PENDING", 1, ""), ("one", 1, "PENDING", 0, ""),
    ], "the task is back in the queue")  # fmt: skip
    assert (slurm.node_states()[NODE].has_task, "DOWN" in slurm.node_states()[NODE].states) == (False, True)
    slurm.tend()
    machine.join(2)
    machine.until(lambda: running(slurm) == [NODE], "the task runs")
    slurm.cancel(slurm.queue())
    machine.until(lambda: not slurm.queue() and not slurm.node_states()[NODE].has_task, "the task is gone")
    assert slurm.node_states()[NODE].busy_ago is not None
    assert slurm.drain(NODE, 2).going
    submit(slurm, "two", [0])
    assert [one.node for one in slurm.queue()] == [""]
