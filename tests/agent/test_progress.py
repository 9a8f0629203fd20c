"""How far a job is, by what it prints, reports, logs and saves: the rules, and the agent as a real process."""

import json
import math
from pathlib import Path

import pytest

from orchestrator.agent.attempt.progress_tracker import ProgressTracker
from orchestrator.agent.telemetry.progress import (
    KnownProgress,
    ProgressReader,
    StepRate,
    known,
    read_progress,
)
from orchestrator.clock import VirtualClock
from orchestrator.contract.printed.choose import Printed
from tests.agent.agent_lab import AgentLab
from tests.agent.test_event_files import TENSORBOARDX

NANOGPT = """
import os, sys, time
for step in range(0, 41):
    loss = 4.0 / (step + 1)
    if step % 5 == 0:
        print(f"step {step}: train loss {loss:.4f}, val loss 9.0000")
    print(f"iter {step}: loss {loss:.4f}, time {50.0:.2f}ms, mfu 0.07%")
    time.sleep(0.05)
"""

NOTHING, QUIET = ProgressReader(), Printed()


def sources(
    reported: ProgressReader = NOTHING, printed: Printed = QUIET, events: ProgressReader = NOTHING,
    saved: int | None = None, resumed: int | None = None, target: int | None = None,
) -> KnownProgress:  # fmt: skip
    """Return what is known from some sources."""
    return known(reported, printed, events, saved, resumed, target)


def test_the_order_of_the_sources() -> None:
    """
    The job's own file, then what it prints, then event files, then its saves.

    A loss comes from the first that has one.
    """
    reported, printed = ProgressReader(5), Printed(6, 0.6, None, 100, "lines", exact=True)
    events = ProgressReader(7, 0.7)
    assert sources(reported, printed, events, 4) == KnownProgress(5, 0.6, 100, "file")
    assert sources(printed=printed, events=events, saved=4) == KnownProgress(6, 0.6, 100, "lines")
    assert sources(events=events, saved=4) == KnownProgress(7, 0.7, None, "events", exact=False)
    assert sources(saved=4) == KnownProgress(4, None, None, "commits")
    assert sources() == KnownProgress()


@pytest.mark.parametrize("key", ["save_pause", "save_seconds"])
def test_the_save_pause_is_read_under_the_key_of_an_earlier_release_too(key: str, tmp_path: Path) -> None:
    """A job that was written for it goes on reporting."""
    (tmp_path / "progress").write_text(json.dumps({"step": 5, key: 0.5}))
    assert read_progress(tmp_path / "progress") == ProgressReader(5, None, 0.5)


def test_a_bar_that_begins_again_after_a_restart_is_not_believed() -> None:
    """Its count would look like a job that ignores its checkpoint; its loss is one all the same."""
    bar = Printed(3, 0.5, None, 90, "bars", exact=False)
    assert sources(printed=bar).step == 3
    assert sources(printed=bar, resumed=40) == KnownProgress(None, 0.5, 90, "")
    assert sources(printed=bar, saved=20) == KnownProgress(20, 0.5, 90, "commits")
    assert sources(printed=bar, target=2).step is None


def test_an_own_count_below_the_checkpoint_is_reported_as_it_is() -> None:
    """A job that counts from 0 again has not read its checkpoint, and that must be reported."""
    assert sources(printed=Printed(3, 0.5, None, None, "lines", exact=True), resumed=40).step == 3


def test_a_loss_is_not_that_of_a_newer_save() -> None:
    """The line named its step, and so did the event file; the save has no loss."""
    printed = Printed(180, 0.02, None, None, "lines", exact=True)
    assert sources(printed=printed, saved=195) == KnownProgress(195, 0.02, None, "lines", loss_step=180)
    events = ProgressReader(180, 0.02)
    assert sources(events=events, saved=195) == KnownProgress(195, 0.02, None, "commits", loss_step=180)


def test_a_loss_that_is_no_number_is_not_reported_as_one() -> None:
    """It is said to be odd; a heartbeat is JSON, which has no NaN."""
    found = sources(printed=Printed(3, math.nan, None, None, "lines", exact=True))
    assert (found.loss, found.odd_loss) == (None, True)


def test_the_rate_is_measured_between_steps() -> None:
    """The time before the first step, which compiles, is not in it; a source that counts otherwise begins again."""
    rate = StepRate()
    rate.at(100.0, 1, "lines")
    rate.at(100.2, 2, "lines")
    assert rate.value is None
    for second in range(1, 1000):
        rate.at(100.0 + second, 1 + 4 * second, "lines")
    assert rate.value == pytest.approx(4.0)
    rate.at(1200.0, 7, "bars")
    assert rate.value is None


def test_an_unmodified_script_shows_step_loss_and_rate(lab: AgentLab) -> None:
    """The lines of nanoGPT, with no word of tpuctl in the script."""
    code = lab.put_bundle({"train.py": NANOGPT.encode()})
    machine = lab.machine(BUNDLE=code).run_to_end()

    heartbeat = machine.heartbeat()
    assert (heartbeat["step"], heartbeat["loss"], heartbeat["progress_from"]) == (40, 0.0976, "lines")
    assert 5 < heartbeat["rate"] < 21
    assert heartbeat["timings"]["first_step"] > heartbeat["timings"]["spawned"]


def test_a_printed_target_proves_the_end_like_a_reported_one(lab: AgentLab) -> None:
    """A count of the job's own does, one of a bar does not."""
    code = lab.put_bundle({"train.py": NANOGPT.encode()})
    machine = lab.machine(BUNDLE=code, TARGET_STEPS=40).run_to_end()
    assert "step 40 is reached" in machine.heartbeat()["message"]

    bar = "import sys; sys.stderr.write(' 50%|#####     | 20/40 [00:01<00:01, 9it/s, loss=1.5]\\r' * 2)"
    other = lab.machine("m1", COMMAND=f'python3 -c "{bar}"', TARGET_STEPS=20, FAILURES=1, INCARNATION=2)
    other.run_to_end()
    assert (
        "told no step that can prove the target 20: set a pattern in job.progress"
        in other.heartbeat()["message"]
    )
    assert (other.heartbeat()["step"], other.heartbeat()["loss"]) == (20, 1.5)


def test_the_last_lines_of_a_killed_job_are_in_its_log(lab: AgentLab) -> None:
    """Python would hold them back, because its output is no terminal."""
    script = b"import time\nfor n in range(5): print('line', n)\ntime.sleep(600)\n"
    machine = lab.machine(BUNDLE=lab.put_bundle({"train.py": script})).start()

    machine.until(lambda: "line 4" in lab.log(), "the last line in the bucket")
    machine.kill_all()
    assert "line 4" in lab.log()


@pytest.mark.parametrize(
    ("own", "observed"), [({}, "1"), ({"_PYTHONUNBUFFERED": ""}, "")], ids=["default", "own"]
)
def test_output_is_unbuffered_unless_the_user_says_otherwise(
    lab: AgentLab, own: dict[str, str], observed: str
) -> None:
    """Job and setup alike; an empty value of the user's is a value."""
    say = 'echo "[$PYTHONUNBUFFERED]"'
    lab.machine(SETUP=say, COMMAND=say, **own).run_to_end()
    assert lab.log().count(f"[{observed}]") == 2


def test_a_loss_in_event_files_is_read(lab: AgentLab) -> None:
    """A job that prints nothing, but logs for TensorBoard into the folder it runs in."""
    script = (
        "import base64, pathlib, time\n"
        f"data = base64.b85decode({TENSORBOARDX!r})\n"
        "folder = pathlib.Path('runs/one')\nfolder.mkdir(parents=True)\n"
        "(folder / 'events.out.tfevents.1').write_bytes(data)\ntime.sleep(600)\n"
    )
    machine = lab.machine(BUNDLE=lab.put_bundle({"train.py": script.encode()})).start()

    machine.until(lambda: machine.heartbeat().get("step") == 3, "the step of the event file")
    assert machine.heartbeat()["progress_from"] == "events"
    assert machine.heartbeat()["loss"] == pytest.approx(4 / 3)


def test_own_patterns_reach_the_agent(lab: AgentLab) -> None:
    """As JSON in job.env; the heartbeat says that they found the step."""
    own = '{"step": "done with (\\\\d+)", "loss": "cost ([0-9.]+)", "rate": "speed ([0-9.]+)"}'
    lab.machine(PROGRESS=own, COMMAND="echo done with 70, cost 1.25, speed 3.5; echo step 900 loss 9")
    heartbeat = lab.machines[0].run_to_end().heartbeat()
    assert (heartbeat["step"], heartbeat["loss"], heartbeat["rate"], heartbeat["progress_from"]) == (
        70,
        1.25,
        3.5,
        "pattern",
    )


def test_hostile_output_does_not_stop_the_agent(lab: AgentLab) -> None:
    """Bytes, endless lines and numbers that no float holds go to the log, and the job ends as it does."""
    script = (
        b"import sys\nout = sys.stdout.buffer\n"
        b"out.write(bytes(range(256)) * 4000)\nout.write(b'step 1 ' * 40000)\n"
        b"out.write(b'\\nstep ' + b'9' * 5000 + b' loss 1\\nstep 7 loss 1e308\\nstep 8 loss nan\\n')\n"
    )
    machine = lab.machine(BUNDLE=lab.put_bundle({"train.py": script})).run_to_end()
    heartbeat = machine.heartbeat()
    assert (heartbeat["exit_code"], heartbeat["step"], heartbeat["loss"]) == (0, 8, None)


def test_reports_are_close_together_after_each_start_of_the_job(lab: AgentLab) -> None:
    """A person who waits for the first steps sees them within seconds; a long training costs no more reports."""
    machine = lab.machine(HEARTBEAT_SECONDS=30)
    clock = VirtualClock()
    heartbeat, now = machine.context(clock).heartbeat, clock.now()
    assert heartbeat.pause(now) == 30, "before the agent has begun"
    heartbeat.time("setup_done")
    assert heartbeat.pause(now) == 2, "the process starts a moment after the phase is reported"
    heartbeat.time("spawned")
    assert [round(heartbeat.pause(now + age)) for age in (0, 8, 40, 400)] == [2, 2, 10, 30]
    fast = lab.machine("fast", HEARTBEAT_SECONDS=0.2)
    assert fast.context().heartbeat.pause(now) == 0.2


def test_a_save_beyond_the_last_printed_step_does_not_hide_that_steps_are_printed(lab: AgentLab) -> None:
    """A job prints each tenth step and is stopped between two of them: it has not reported its saves only."""
    context = lab.machine().context()
    tracker = ProgressTracker(context)
    tracker.begin(trains=True)
    tracker.take_output(b"step 10 loss 0.5\n")
    tracker.observe(None)
    by = context.heartbeat.get("progress_from")
    assert by not in ("", "commits")
    context.local.newest = 13
    tracker.observe(None, last=True)
    assert (context.heartbeat.get("step"), context.heartbeat.get("progress_from")) == (13, by)
    tracker.begin(trains=True)
    context.local.newest = 20
    tracker.observe(13)
    assert context.heartbeat.get("progress_from") == "commits"
