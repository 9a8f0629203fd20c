"""
What a rehearsal takes from a log.
"""

from orchestrator.cli.evidence import TAIL, last_output

START = "--- incarnation 1, worker 0, attempt 2: resume from step 5 (why) ---"
END = "--- attempt 2 failed: the job left with status 1 ---"


def test_the_last_lines_are_those_of_the_last_start():
    """The agent's own lines are left out; a start before it is another story."""
    assert last_output(["old", END, START, "Traceback", "boom", END, "--- gave up: x ---"]) == (
        "Traceback", "boom",
    )  # fmt: skip


def test_no_more_lines_are_shown_than_a_screen_has_room_for():
    """The newest ones."""
    lines = [f"line {number}" for number in range(100)]
    assert last_output([START, *lines, END]) == tuple(lines[-TAIL:])
    assert last_output([START, END]) == ()
