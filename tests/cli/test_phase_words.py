"""What a worker does is said in words wherever people read it; programs have the phase."""

from io import StringIO

import pytest
from rich.console import Console

from orchestrator.advice.explain.explanation import ExplainedItem, Explanation
from orchestrator.cli.views.explain import render
from orchestrator.cli.views.paint import BAD, WAITING, state
from orchestrator.cli.views.status import status_rows
from orchestrator.contract.phase import Phase
from orchestrator.domain.plan import LoopRule
from orchestrator.domain.status import DeploymentState
from orchestrator.domain.text.phase_words import phase_words
from tests.cli.test_status_view import body, worker


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("boot", "machine boots"),
        ("restore", "restoring the checkpoint"),
        ("ended", "ended, saving its files"),
    ],
)
def test_the_lines_of_job_and_worker_have_words_and_json_the_phase(phase, words):
    """`job restore` is no sentence, and beside `job runs` the phase `run` would be a second state."""
    found = body(workers=[worker(phase=phase)])
    rows = [row.text for row in status_rows(found, unbilled=False, width=0)]
    assert f"job          {words}, step 120 of 400 (30%), loss 2.31" in rows
    assert any(row.startswith(f"worker 0     {words}, step 120") for row in rows)
    assert found.as_dict()["workers"][0]["phase"] == phase


def test_explain_has_the_same_words():
    """Of a slice with several phases each one; when the next look comes stands behind it."""
    item = ExplainedItem("job", "restore, run", "why", LoopRule.JOB_STARTS, next="look again", when=100.0)
    out = StringIO()
    render(
        Explanation(
            "demo", DeploymentState.STARTING, "why", 100.0, (item,), {LoopRule.JOB_STARTS: "the rule"}
        ),
        Console(file=out, width=80),
    )
    shown = [line.strip() for line in out.getvalue().splitlines()]
    assert f"{item.title}: restoring the checkpoint, runs" in shown
    assert "next  look again (now)" in shown


@pytest.mark.parametrize("phase", Phase)
def test_words_keep_the_colour_of_their_phase(phase):
    """Every phase of work waits, every bad end is red; the state that nobody knows has a colour of its own word."""
    words, colour = phase_words(phase.value), state(phase_words(phase.value))
    if phase in {Phase.BOOT, Phase.SETUP, Phase.RESTORE, Phase.STOPPING, Phase.STOPPED}:
        assert colour == f"{WAITING}{words}\x1b[0m"
    if phase in {Phase.FAILED, Phase.UNCOMMITTED}:
        assert colour == f"{BAD}{words}\x1b[0m"
