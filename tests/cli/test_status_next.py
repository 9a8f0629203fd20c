"""The line `next` of a status: after each end it says how to go on."""

import pytest

from orchestrator.cli.views.status import status_rows
from orchestrator.domain.plan import Outcome
from orchestrator.domain.text.hints import AFTER_END
from tests.cli.test_status_view import BUCKET, body, worker

VM = {"kind": "vm", "zone": "europe-west4-b", "name": "numpy-lm-vm", "state": "TERMINATED"}
NO_TPU = {"kind": "tpu", "zone": "", "name": "-", "state": "absent"}


def next_lines(outcome, *resources):
    """Return the lines `next` of a deployment that has ended."""
    found = body(
        outcome=outcome.value, state=outcome.value, message="why", resources=[*resources, NO_TPU], watcher=None,
        next_pass_in_s=None, ttl_remaining_s=None,
    )  # fmt: skip
    rows = status_rows(found, unbilled=False, width=0)
    return [row.text.removeprefix("next").strip() for row in rows if row.text.startswith("next")]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LIMIT_REACHED, Outcome.REFUSED])
def test_an_unhappy_end_says_how_to_go_on_in_the_words_of_explain(outcome):
    """And that machines that are left can be deleted, but not the data, from which the job goes on."""
    begins = AFTER_END[outcome]
    down = "`tpuctl down` deletes the machines that are left; the bucket stays"
    assert next_lines(outcome, BUCKET, VM) == [begins, down]
    assert next_lines(outcome, BUCKET) == [begins]
    assert next_lines(outcome) == [begins]


@pytest.mark.parametrize(
    ("words", "reached"), [({"step": 400}, 400), ({"step": None, "checkpoint_step": 400}, 400)], ids=str
)
@pytest.mark.parametrize("target", [400, 1000], ids=["reached", "raised"])
def test_a_target_that_was_raised_after_the_end_says_how_the_job_trains_on(target, words, reached):
    """And neither a share of it nor a bar: the job is done, and not at 40% of anything."""
    found = body(
        outcome="done", state="done", message="all workers report it", target_steps=target, watcher=None,
        next_pass_in_s=None, resources=[BUCKET, NO_TPU], workers=[worker(phase="done", **words)],
    )  # fmt: skip
    shown = [row.text for row in status_rows(found, unbilled=False, width=0, drawn=True)]
    further = (
        "`tpuctl up` trains on to step 1000; raise the number of steps in your program too if it has one"
    )
    raised = target > reached
    assert any(row.endswith(further) for row in shown) == raised
    now = f"done: all workers report it, at step {reached}; job.target_steps is 1000 now"
    assert any(row.endswith(now) for row in shown) == raised
    assert not any("40%" in row for row in shown)


def test_every_end_has_a_next_step():
    """The tutorial promises the line."""
    assert all(next_lines(outcome, BUCKET) for outcome in Outcome)
