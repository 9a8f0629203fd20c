"""What a start waits for runs side by side: the checkpoint comes back while the code is set up."""

import threading
import time
from collections import Counter

from tests.agent.agent_lab import AgentLab

SLOW = 1.0


def saved_by_another(lab: AgentLab, steps: int = 20) -> None:
    """Let an earlier machine train to *steps* and commit."""
    lab.machine("before", INCARNATION=1, _STEPS=steps, _SAVE_EVERY=10).run_to_end()


def slow_restores(lab: AgentLab, seconds: float = SLOW) -> "Counter[str]":
    """Let every download of a checkpoint's files take a while, as large ones do; count them."""
    downloads: Counter[str] = Counter()

    def slowly(request):
        payload = "checkpoints" in request.path and "manifest" not in request.path
        if payload and request.method == "GET" and request.query.get("alt") == "media":
            downloads[request.path] += 1
            time.sleep(seconds)  # the case: a large file takes so long

    lab.fault = slowly
    return downloads


def endless_restores(lab: AgentLab, until: threading.Event) -> None:
    """Let no download of a checkpoint's files end before *until* is set."""

    def wait(request):
        payload = "checkpoints" in request.path and "manifest" not in request.path
        if payload and request.query.get("alt") == "media":
            until.wait(600)

    lab.fault = wait


def test_setup_runs_while_the_checkpoint_comes_back(lab: AgentLab) -> None:
    """The timings of the heartbeat overlap, and together take less than one after the other."""
    saved_by_another(lab)
    slow_restores(lab)
    machine = lab.machine(INCARNATION=2, SETUP=f"sleep {2 * SLOW}", _STEPS=30)
    machine.run_to_end()

    beat = machine.heartbeat()
    times = beat["timings"]
    assert beat["resumed_from"] == 20
    assert times["restore_began"] < times["fetched"] <= times["setup_began"] < times["restored"]
    apart = times["setup_done"] - times["setup_began"] + times["restored"] - times["restore_began"]
    assert times["spawned"] - times["restore_began"] < apart - SLOW / 2


def test_a_setup_that_fails_early_leaves_the_restore_to_end_before_the_next(lab: AgentLab) -> None:
    """Two restores at once would take each other's half-made folder away; so each file is fetched once."""
    saved_by_another(lab)
    downloads = slow_restores(lab, 3 * SLOW)
    machine = lab.machine(INCARNATION=2, SETUP="mkdir ../../tried || exit 0; exit 3", _STEPS=30)
    machine.run_to_end()

    assert [one["resume_step"] for one in lab.attempts(2)] == [20, 20]
    assert "the setup command" in lab.attempts(2)[1]["reason"]
    assert set(downloads.values()) == {1}


def test_a_notice_during_the_restore_is_obeyed_at_once(lab: AgentLab) -> None:
    """The machine has no time to bring back what nobody will read there."""
    saved_by_another(lab)
    arrived = threading.Event()
    endless_restores(lab, until=arrived)
    machine = lab.machine(INCARNATION=2, _STEPS=30).start()
    machine.until(lambda: machine.status().get("phase") == "restore", "the restore")
    lab.metadata.preempted.set()
    try:
        machine.until(lambda: machine.heartbeat().get("phase") == "stopped", "the end")
    finally:
        arrived.set()
    assert machine.wait() == 0
    assert lab.log(2).count("resume from step") == 0


def test_what_the_setup_command_reports_is_no_training(lab: AgentLab) -> None:
    """A setup that trains a little, to warm a cache, shows no step and no loss of the job's."""
    setup = 'echo "{\\"step\\": 7}" > $TPUCTL_PROGRESS_FILE; sleep 0.4'
    machine = lab.machine(SETUP=setup, COMMAND="true").run_to_end()
    beat = machine.heartbeat()
    assert (beat["step"], beat["began_at"], "first_step" in beat["timings"]) == (None, None, False)
