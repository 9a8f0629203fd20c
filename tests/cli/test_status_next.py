"""The line `next` of a status: after each end it says how to go on."""

import pytest

from orchestrator.cli.views.status import status_rows
from orchestrator.domain.plan import Outcome
from orchestrator.domain.text.hints import AFTER_END
from tests.cli.test_status_view import BUCKET, body

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


def test_every_end_has_a_next_step():
    """The tutorial promises the line."""
    assert all(next_lines(outcome, BUCKET) for outcome in Outcome)
