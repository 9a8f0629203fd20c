"""A slice of four workers: they start, fail, move and end together."""

import pytest

from tests.e2e.process_lab import kill

pytestmark = pytest.mark.e2e
PART_OF_WORKER_2 = 'grep -q "^WORKER_ID=2" "$TPUCTL_ROOT/job.env" && exit 7 || echo fine'


def test_four_workers_restart_together_and_a_dead_machine_moves_them_all(lab):
    """A killed job restarts the gang at one step; a machine that dies under a READY node costs the node."""
    lab.use_example(tpu="v5litepod-16")
    lab.tpuctl("up")
    lab.wait_for("step 6", lambda: lab.at(6, workers=4))
    assert len(lab.jobs()) == 4
    environs = dict(lab.processes())
    (victim,) = [pid for pid in lab.jobs() if b"\0TPUCTL_WORKER_ID=2\0" in environs[pid]]
    kill(victim)
    heartbeats = lab.wait_for("attempt 2", lambda: lab.at(6, workers=4, attempt=2))
    assert {b["attempt"] for b in heartbeats} == {2}
    (resumed,) = {b["resumed_from"] for b in heartbeats}
    assert resumed >= 5

    everyone = lab.tpuctl("exec", "--", PART_OF_WORKER_2, expect=1)
    assert sorted(everyone.out.split("\n")) == ["", *(f"e2e-tpu-g1-w{n}: fine" for n in (0, 1, 3))]
    assert "e2e-tpu-g1-w2: exit code 7" in everyone.err

    watch = lab.start("watch")
    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--worker", "2")
    lab.wait_for("another node", lambda: lab.at(1, workers=4, incarnation=2))
    lab.wait_for("the reason", lambda: "out of reach by SSH" in lab.said(watch))
    lab.hurry()
    lab.end(watch)
    assert [(b["phase"], b["committed_step"]) for b in lab.heartbeats()] == [("done", 150)] * 4
