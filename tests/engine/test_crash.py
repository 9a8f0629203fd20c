"""
A kill at every step: whatever was half done, a fresh controller ends with one node, one VM and no leak (R1).

A kill is an exception that nothing may catch, raised before a mutating request or a write to disk; a
kill after a step is the same as one before the next. From then on the dead process does nothing: every
later step of its other threads is killed too.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.core.world import NodeState
from orchestrator.engine import act, files, journal, record
from tests.engine.engine_lab import Kill, Lab


class Tripwire:
    """
    Count the steps of a controller and kill it at one of them.
    """

    def __init__(self, at=None):
        self.at, self.steps, self.dead = at, [], False

    def step(self, what):
        if self.dead or len(self.steps) == self.at:
            self.dead = True
            raise Kill(what)
        self.steps.append(what)

    def around(self, name, call):
        def wrapped(*args, **options):
            self.step(name)
            return call(*args, **options)

        return wrapped


def bring_up(lab):
    """
    From nothing.
    """
    lab.up()


def come_back(lab):
    """
    TPU and VM are preempted together.
    """
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.cloud.preempt("demo-vm", notice=False)
    lab.up(lab.spec)


def take_down(lab):
    """
    Delete machines and data.
    """
    controller = lab.controller()
    controller.sweep().machines()
    controller.sweep().bucket(lab.bucket)


def finish(lab):
    """
    Report that the job is done.
    """
    lab.machines.report(phase="done")
    lab.controller().run()


SCENARIOS = {"up": bring_up, "preempted": come_back, "done": finish, "down": take_down}


def killed_at(folder, monkeypatch, scenario, at):
    """
    Run a scenario on a fresh cloud with a kill at one step; return the lab and the steps that were made.
    """
    from tests.engine.engine_lab import a_spec

    lab = Lab(folder, latency="instant")
    lab.spec = a_spec(vm__spot=True)
    if scenario != "up":
        lab.up(lab.spec)
    wire = Tripwire(at)
    with monkeypatch.context() as patch:
        # One worker, so that the order of steps is the same in every run.
        patch.setattr(act, "ThreadPoolExecutor", lambda max_workers: ThreadPoolExecutor(1))
        patch.setattr(files.os, "fsync", lambda _: None)  # a kill of the process loses nothing unsynced
        patch.setattr(record, "write_atomically", wire.around("saving the record", record.write_atomically))
        patch.setattr(journal, "append_synced", wire.around("writing the journal", journal.append_synced))
        patch.setattr(lab.wire, "before", wire.step)
        try:
            SCENARIOS[scenario](lab)
        except Kill:
            assert wire.dead
    return lab, wire.steps


def check_running(lab):
    """
    One node, one VM, one job, a usable bucket, and then no further call.
    """
    lab.up(lab.spec)
    lab.wait(60)
    assert list(lab.nodes().values()) == [NodeState.READY]
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert len({m for m in lab.machines.running if m.startswith("tpu")}) == 1
    policy = lab.clients.storage.bucket(lab.bucket).get_iam_policy()
    assert any("objectAdmin" in b["role"] for b in policy.bindings), "machines could not write"
    before = lab.mutations()
    lab.up(lab.spec)
    assert lab.mutations() == before


def check_gone(lab):
    """
    Nothing is left.
    """
    take_down(lab)
    assert (lab.nodes(), lab.vms(), lab.objects()) == ({}, {}, [])


def check_done(lab):
    """
    Nothing is billed but a stopped disk.
    """
    lab.controller(lab.spec).run()
    lab.wait(60)
    assert lab.nodes() == {}
    assert lab.vms() == {"demo-vm": "TERMINATED"}


CHECKS = {"up": check_running, "preempted": check_running, "done": check_done, "down": check_gone}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_step_leaks_and_doubles_nothing(tmp_path, monkeypatch, scenario, capsys):
    """
    All steps are enumerated; a new mutating call adds its own.
    """
    lab, steps = killed_at(tmp_path / "whole", monkeypatch, scenario, None)
    CHECKS[scenario](lab)
    for at, what in enumerate(steps):
        lab, done = killed_at(tmp_path / str(at), monkeypatch, scenario, at)
        assert len(done) == at, "the scenario is not the same in every run"
        try:
            CHECKS[scenario](lab)
        except BaseException as error:
            raise AssertionError(f"{scenario}: killed at step {at}, {what}: {error}") from error
    with capsys.disabled():
        print(f" {scenario}: {len(steps)} points", end="")
    assert len(steps) >= 9
