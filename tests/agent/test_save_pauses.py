"""The save pause is for how long the training stands still, whatever else is written meanwhile."""

import pytest

from orchestrator.agent.attempt.save_pauses import FEWEST, LATE, SavePauses
from orchestrator.agent.save_interval_tracker import SaveIntervalTracker
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent, HeartbeatWriter, heartbeat_name
from orchestrator.clock import VirtualClock
from orchestrator.contract.interval import SHORTEST_PAUSE
from tests.agent.agent_lab import AgentLab
from tests.agent.test_storage import bucket_of, settings_of

STEP = 0.5


class TrainingRun:
    """A training with a step each half second, observed each *observed* steps, on a clock of its own."""

    def __init__(self, observed: int = 1) -> None:
        self.pauses, self.found = SavePauses(), list[float]()
        self.now, self.at, self.every = 100.0, 0, observed

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.now, self.at = self.now + STEP, self.at + 1
            if self.at % self.every == 0:
                self.found += self.pauses.step(self.now, self.at)

    def save(self, stops: float = 0.0, *, observed_after: int = 0, counted: int = 0) -> None:
        """Save this step; the training stands still for *stops*, and the save is whole some steps later."""
        step = self.at + counted
        self.now += stops
        self.train(observed_after)
        self.found += self.pauses.saved(self.now, step)


@pytest.mark.parametrize("observed", [1, 5])
@pytest.mark.parametrize("counted", [-1, 0, 1])
def test_a_save_that_the_training_waits_for_costs_that_wait(observed: int, counted: int) -> None:
    """Programs that count from 0 or from 1, observed at each step or at each fifth."""
    run = TrainingRun(observed)
    for _ in range(3):
        run.train(60)
        run.save(12.0, counted=counted)
    run.train(60)
    assert run.found == pytest.approx([12.0] * 3)


def test_a_save_that_another_thread_writes_costs_what_the_copy_takes() -> None:
    """It lasts 25 s, in which the training makes 50 steps; only the copy from the device stops it."""
    run = TrainingRun()
    for _ in range(3):
        run.train(100)
        run.save(0.25, observed_after=50)
    run.train(10)
    assert run.found == pytest.approx([0.25] * 3)


def test_nothing_is_measured_where_each_line_holds_a_save() -> None:
    """A line each ten steps and a save at each of them: how long a step takes alone nobody can see."""
    run = TrainingRun(10)
    for _ in range(30):
        run.train(10)
        run.save(5.0)
    run.train(100)
    assert run.found == []


def test_nothing_is_measured_before_enough_steps_are_known() -> None:
    """The first steps compile."""
    run = TrainingRun()
    run.train(FEWEST)
    run.save(5.0)
    run.train(60)
    assert run.found == []


def test_a_number_that_counts_epochs_is_no_step() -> None:
    """The twelfth save comes long after the twelfth step."""
    run = TrainingRun()
    run.train(int(LATE / STEP) + 40)
    run.found += run.pauses.saved(run.now, 12)
    run.train(5)
    assert run.found == []


def test_a_job_that_begins_at_an_earlier_step_is_measured_from_there() -> None:
    """What its last start has shown is not mixed with it."""
    run = TrainingRun()
    run.train(60)
    run.at = 20
    run.train(4)
    run.save(5.0)
    run.train(60)
    run.save(5.0)
    run.train(60)
    assert run.found == pytest.approx([5.0])


THREADED = """
import json, os, threading, time
from pathlib import Path

folder, root = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), Path(os.environ["TPUCTL_ROOT"])
file, step, told, writer = Path(os.environ["TPUCTL_PROGRESS_FILE"]), 0, None, None

def write(number):
    global told
    began, here = time.monotonic(), folder / str(number)
    here.mkdir(parents=True)
    (here / "state").write_bytes(b"x")
    while step < number + 40:
        time.sleep(0.01)
    (here / "COMPLETE").touch()
    told = time.monotonic() - began

while True:
    step += 1
    time.sleep(0.03)
    if step % 60 == 0:
        threading.Thread(target=write, args=(step,), daemon=True).start()
    news = {"step": step} if told is None else {"step": step, "save_pause": told}
    Path(f"{file}.new").write_text(json.dumps(news))
    os.replace(f"{file}.new", file)
    heartbeat = json.loads((root / "state" / "status.json").read_text())
    if heartbeat["save_pause_from"] == "measured" and step >= 240:
        print("ENDS", told, flush=True)
        break
"""


def test_a_real_program_that_saves_in_a_thread_is_not_charged_for_what_that_thread_does(
    lab: AgentLab,
) -> None:
    """It reports how long the thread took, forty steps; the agent sees that the training went on meanwhile."""
    lab.code = lab.put_bundle({"train.py": THREADED.encode()})
    machine = lab.machine(SAVE_INTERVAL="auto")
    machine.run_to_end()
    reported = float(next(line for line in lab.log().splitlines() if line.startswith("ENDS")).split()[1])
    heartbeat = machine.heartbeat()
    assert heartbeat["save_pause_from"] == "measured"
    # No save is free: one that seems so would be asked for without end.
    assert SHORTEST_PAUSE <= heartbeat["save_pause"] < reported / 2
    assert heartbeat["save_pauses"] is not None


def test_a_new_agent_adds_to_what_the_one_before_has_measured(lab: AgentLab) -> None:
    """A push starts the agent again; the saves before it have stopped the training all the same."""
    settings, bucket, clock = settings_of(lab), bucket_of(lab), VirtualClock()
    for pauses in ((0.25, 0.75), (2.0,)):
        heartbeat = HeartbeatContent(settings, clock)
        tracker = SaveIntervalTracker(settings, bucket, heartbeat, clock)
        for pause in pauses:
            tracker.take_measured(pause)
        writer = HeartbeatWriter(settings, bucket, heartbeat, clock)
        for _ in range(2):
            clock.wait(10)
            heartbeat.set(step=1)
            writer.report()
    reported = lab.json(heartbeat_name(1, 0))
    assert (reported["save_pauses"], reported["measured_saves"]) == (3.0, 3)


def test_one_slow_moment_beside_a_save_is_no_sum_of_saves(lab: AgentLab) -> None:
    """Packages are packed beside the third one: `watch` would say 0.6 s each where `status` says 0.1 s at most."""
    heartbeat = HeartbeatContent(settings_of(lab), VirtualClock())
    tracker = SaveIntervalTracker(settings_of(lab), bucket_of(lab), heartbeat, VirtualClock())
    for pause in (0.0, 0.01, 2.9, 0.01, 0.02):
        tracker.take_measured(pause)
    assert (heartbeat.get("save_pauses"), heartbeat.get("measured_saves")) == (0.05, 5)
    assert heartbeat.get("save_pause") == SHORTEST_PAUSE
