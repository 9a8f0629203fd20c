"""What the benchmark of a fleet reads from records, and writes into its table."""

import os
import subprocess
from types import SimpleNamespace

from benchmarks.fleet import figures, slurm_alone
from benchmarks.fleet.figures import Figure
from benchmarks.fleet.market import AWS, recorded
from benchmarks.fleet.running_fleet import Step, redone
from benchmarks.fleet.slurm_alone import PAUSE, STEPS, TASK


def test_a_run_replaces_its_own_rows_of_the_table_and_no_others(tmp_path):
    """A figure that nobody has measured says so."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    figures.put([Figure("F7", "two", True), Figure("F9", "30 s", False)], page)
    figures.put([Figure("F7", "none", True)], page)
    lines = [line for line in page.read_text().splitlines() if line.startswith("| F")]
    rows = {line.split("|")[1].strip(): line for line in lines}
    assert list(rows) == list(figures.GOALS)
    assert ("none" in rows["F7"], "two" in rows["F7"]) == (True, False)
    assert "| 30 s | **missed** | `python -m benchmarks.fleet F9` |" in rows["F9"]
    assert "not measured yet" in rows["F11"]


def test_preemptions_of_a_record_are_scaled_to_the_nodes_of_the_fleet():
    """The record of 32 machines loses an eighth of that on four nodes, within its hours."""
    whole, part = recorded(AWS, 32, (0.0, 9.0)), recorded(AWS, 4, (0.0, 9.0))
    assert sum(count for _, count in whole) // 8 == sum(count for _, count in part) > 0
    assert all(0 <= at <= 9 * 3600 for at, _ in whole)


def test_a_record_of_counts_has_a_loss_for_each_machine_that_goes(tmp_path):
    """Copies of a row that stand there again, a minute later each, are no preemptions."""
    trace = tmp_path / "gcp.txt"
    rows = ["13:07:45, 8", "13:08:45, 8", "13:09:45, 8", "13:08:45, 6", "13:20:00, 8", "13:30:00, 3"]
    trace.write_text("".join(f"2021-12-10, {row}\n" for row in rows))
    assert recorded(trace, 8, (0.0, 1.0)) == [(1335.0, 5)]


def test_steps_are_made_again_after_a_restart_from_an_older_save():
    """Of steps 1 to 5 the last two were not saved."""
    steps = [Step(float(n), 1, n) for n in range(1, 6)] + [Step(9.0, 2, 4)]
    assert redone(steps) == [2]


def test_utilisation_counts_all_steps_and_goodput_each_step_once():
    """Between the two moments; a task that ran twice at once spoils both."""
    market = SimpleNamespace(watched=SimpleNamespace(seconds=10 * PAUSE), delays=[0.5, 0.7])
    steps = {
        "1": [Step(float(n), 0, n) for n in range(1, 9)]
        + [Step(9.0, 1, 8), Step(10.0, 1, 9), Step(99.0, 1, 10)]
    }
    used, good = slurm_alone.figures(market, steps, (1.0, 10.0), "here")
    assert (used.found[:5], used.met, good.found[:5], good.met) == ("1.000", True, "0.900", False)
    assert "1 restarts made 1.0 steps again" in good.found
    twice = {"1": [Step(1.0, 0, 1), Step(2.0, 1, 1), Step(3.0, 0, 2)]}
    assert slurm_alone.figures(market, twice, (1.0, 10.0), "here")[0].met is False


def test_a_task_without_an_agent_goes_on_from_its_save_after_a_kill(tmp_path):
    """Each step is noted with the number of the start."""
    script = TASK.replace("NOTES", str(tmp_path)).replace(f"-t {PAUSE}", "-t 0.01")
    (tmp_path / "7.save").write_text("5\n")
    environ = {**os.environ, "SLURM_ARRAY_TASK_ID": "7", "SLURM_RESTART_COUNT": "2"}
    subprocess.run(["bash", "-c", script], env=environ, check=True, timeout=60)
    rows = [line.split()[1:] for line in (tmp_path / "7").read_text().splitlines()]
    assert rows == [["2", str(number)] for number in range(6, STEPS + 1)]
    assert (tmp_path / "7.save").read_text() == f"{STEPS}\n"
