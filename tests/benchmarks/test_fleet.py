"""What the benchmark of a fleet reads from records, and writes into its table."""

from benchmarks.fleet import figures
from benchmarks.fleet.figures import Figure
from benchmarks.fleet.grant import Step, redone
from benchmarks.fleet.market import AWS, recorded


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


def test_losses_of_a_record_are_scaled_to_the_nodes_of_the_fleet():
    """The record of 32 machines loses an eighth of that on four nodes, within its hours."""
    whole, part = recorded(AWS, 32, (0.0, 9.0)), recorded(AWS, 4, (0.0, 9.0))
    assert sum(count for _, count in whole) // 8 == sum(count for _, count in part) > 0
    assert all(0 <= at <= 9 * 3600 for at, _ in whole)


def test_a_record_of_counts_has_a_loss_for_each_machine_that_goes(tmp_path):
    """Copies of a row that stand there again, a minute later each, are no losses."""
    trace = tmp_path / "gcp.txt"
    rows = ["13:07:45, 8", "13:08:45, 8", "13:09:45, 8", "13:08:45, 6", "13:20:00, 8", "13:30:00, 3"]
    trace.write_text("".join(f"2021-12-10, {row}\n" for row in rows))
    assert recorded(trace, 8, (0.0, 1.0)) == [(1335.0, 5)]


def test_steps_are_made_again_after_a_restart_from_an_older_save():
    """Of steps 1 to 5 the last two were not saved."""
    steps = [Step(float(n), 1, n) for n in range(1, 6)] + [Step(9.0, 2, 4)]
    assert redone(steps) == [2]
