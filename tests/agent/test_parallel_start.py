"""What a start waits for runs side by side: the checkpoint comes back while the code is set up."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.agent.agent_lab import AgentLab


def saved_by_another(lab: AgentLab, steps: int = 20) -> None:
    """Let an earlier machine train to *steps* and commit."""
    lab.machine("before", INCARNATION=1, _STEPS=steps, _SAVE_EVERY=10).run_to_end()


@contextmanager
def held_restores(lab: AgentLab) -> Iterator[tuple["Counter[str]", threading.Event]]:
    """Let no download of a checkpoint's files end before the event is set; count them."""
    downloads: Counter[str] = Counter()
    released = threading.Event()

    def hold(request):
        payload = "checkpoints" in request.path and "manifest" not in request.path
        if payload and request.query.get("alt") == "media":
            downloads[request.path] += 1
            released.wait(600)

    lab.fault = hold
    try:
        yield downloads, released
    finally:
        released.set()


def test_setup_runs_while_the_checkpoint_comes_back(lab: AgentLab) -> None:
    """Neither waits for the other: setup begins before the restore ends, and that ends before setup does."""
    saved_by_another(lab)
    go = lab.folder / "go"
    with held_restores(lab) as (_, released):
        machine = lab.machine(
            INCARNATION=2, SETUP=f"until [ -e {go} ]; do sleep 0.02; done", _STEPS=30
        ).start()
        machine.until(lambda: "setup_began" in machine.status().get("timings", {}), "the setup")
        released.set()
        machine.until(lambda: "restored" in machine.status()["timings"], "the end of the restore")
    go.touch()
    assert machine.wait() == 0

    heartbeat = machine.heartbeat()
    times = heartbeat["timings"]
    assert heartbeat["resumed_from"] == 20
    order = ("restore_began", "fetched", "setup_began", "restored", "setup_done", "spawned")
    assert sorted(order, key=times.__getitem__) == list(order)


def test_a_setup_that_fails_early_leaves_the_restore_to_end_before_the_next(lab: AgentLab) -> None:
    """Two restores at once would take each other's half-made folder away; so each file is fetched once."""
    saved_by_another(lab)
    with held_restores(lab) as (downloads, released):
        machine = lab.machine(INCARNATION=2, SETUP="mkdir ../../tried || exit 0; exit 3", _STEPS=30).start()
        machine.until(lambda: machine.status().get("exit_code") == 3, "the failure of the setup")
        machine.until_reports()
        assert (machine.heartbeat()["failures"], len(lab.attempts(2))) == (0, 1)
        released.set()
        assert machine.wait() == 0

    assert [one["resume_step"] for one in lab.attempts(2)] == [20, 20]
    assert "the setup command" in lab.attempts(2)[1]["reason"]
    assert set(downloads.values()) == {1}


def test_a_notice_during_the_restore_is_obeyed_at_once(lab: AgentLab) -> None:
    """The machine has no time to bring back what nobody will read there."""
    saved_by_another(lab)
    with held_restores(lab):
        machine = lab.machine(INCARNATION=2, _STEPS=30).start()
        machine.until(lambda: machine.status().get("phase") == "restore", "the restore")
        lab.metadata.preempted.set()
        machine.until(lambda: machine.heartbeat().get("phase") == "stopped", "the end")
    assert machine.wait() == 0
    assert lab.log(2).count("resume from step") == 0


def test_what_the_setup_command_reports_is_no_training(lab: AgentLab) -> None:
    """A setup that trains a little, to warm a cache, shows no step and no loss of the job's."""
    go = lab.folder / "go"
    setup = f'echo "{{\\"step\\": 7}}" > $TPUCTL_PROGRESS_FILE; until [ -e {go} ]; do sleep 0.02; done'
    machine = lab.machine(SETUP=setup, COMMAND="true").start()
    machine.until(lambda: "setup_began" in machine.status().get("timings", {}), "the setup")
    machine.until_reports()
    go.touch()
    assert machine.wait() == 0
    heartbeat = machine.heartbeat()
    assert (heartbeat["step"], heartbeat["began_step"], "first_step" in heartbeat["timings"]) == (
        None,
        None,
        False,
    )
