"""A job whose TPU was deleted at the end of its budget or ttl: it is stopped, whatever its last report says."""

import pytest

from orchestrator.cli.views.status import status_rows
from tests.cli.test_status_view import BUCKET, body, worker

NO_TPU = {"kind": "tpu", "zone": "", "name": "-", "state": "absent"}
GOING = {"kind": "tpu", "zone": "europe-west4-b", "name": "numpy-lm-tpu-g3", "state": "DELETING"}
LAST = worker(phase="stopping", message="the machine is being taken away")
ENDED = {"state": "limit-reached", "outcome": "limit-reached", "watcher": None, "next_pass_in_s": None}


def shown(tpu, **more):
    """Return the lines about the job and its worker."""
    found = body(**{**ENDED, "workers": [LAST], "resources": [BUCKET, tpu], **more})
    rows = [row.text for row in status_rows(found, unbilled=True, width=0)]
    return [row for row in rows if row.startswith(("job", "worker"))]


def test_a_job_without_its_tpu_is_not_said_to_stop_for_ever():
    """While the TPU is being deleted it may still save; then it is stopped at its step."""
    job, last = shown(NO_TPU)
    assert job == "job          stopped at step 120 of 400 (30%), loss 2.31"
    assert last.startswith("worker 0     last report: asked to stop, step 120, ")
    assert shown(GOING)[0].startswith("job          asked to stop, step 120 of 400")


@pytest.mark.parametrize(
    ("phase", "word"),
    [("done", "done"), ("failed", "failed"), ("uncommitted", "ended without a checkpoint")],
)
def test_a_job_that_has_ended_by_itself_keeps_its_word(phase, word):
    """Its last report is its end."""
    ended = {"state": phase, "outcome": phase, "workers": [worker(phase=phase)]}
    job, last = shown(NO_TPU, **ended)
    # A job that is done before the target ran with an earlier one, so that its share is not that of this file.
    assert job.startswith(f"job          {word}, step 120{', loss' if phase == 'done' else ' of 400'}")
    assert last.startswith(f"worker 0     {word}, step 120")
