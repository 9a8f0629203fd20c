"""What is waited for: one sentence for people, its time as a number for views."""

import pytest

from orchestrator.cli.views.redraw import news_key
from orchestrator.domain.status import DeploymentStatus
from orchestrator.domain.wait import Wait
from orchestrator.planning.job import SilentWorker
from tests.domain.test_status import BODY


@pytest.mark.parametrize(
    ("wait", "now", "later"),
    [
        (Wait("TPU: CREATING"), "TPU: CREATING", "TPU: CREATING"),
        (Wait("TPU: next try", 20.0), "TPU: next try in 20 s", "TPU: next try in 8 s"),
        (
            Wait("VM: next try", 5.0, "by a limit"),
            "VM: next try in 5 s, by a limit",
            "VM: next try in 0 s, by a limit",
        ),
        # A text of Google's or of a machine's that reads alike is left as it is.
        (Wait("worker 0: ends in 90 s"), "worker 0: ends in 90 s", "worker 0: ends in 90 s"),
    ],
)
def test_a_wait_counts_down_by_its_number_alone(wait, now, later):
    """No sentence is read back for the seconds in it."""
    assert (wait.text, wait.later(12.0).text) == (now, later)


def test_the_same_wait_with_fewer_seconds_is_no_news():
    """Another wait is."""

    def key(*waits):
        rows = [{"what": what, "in_s": in_s, "message": ""} for what, in_s in waits]
        return news_key(DeploymentStatus.from_dict(BODY | {"waits_for": rows}))

    assert key(("TPU: next try", 40.0)) == key(("TPU: next try", 35.0))
    assert key(("TPU: next try", 40.0)) != key(("VM: next try", 40.0))


def test_a_silent_worker_is_one_wait_however_long_it_is_silent():
    """Each pass would else report it again."""
    assert SilentWorker(1, 60.0).fact == SilentWorker(1, 75.0).fact == "worker 1 is silent"
    assert SilentWorker(1, None).fact == "worker 1 has never reported"


def test_a_status_of_an_earlier_release_shows_its_sentences_as_they_are():
    """It has published no numbers."""
    earlier = {key: value for key, value in BODY.items() if key not in {"waits_for", "next_changes"}}
    waited = DeploymentStatus.from_dict(earlier | {"next_steps": ["TPU: next try in 9 s"], "waits": True})
    assert (waited.next_changes, waited.waits_for) == ((), (Wait("TPU: next try in 9 s"),))
    changed = DeploymentStatus.from_dict(earlier | {"next_steps": ["create TPU g2"], "waits": False})
    assert (changed.next_changes, changed.waits_for) == (("create TPU g2",), ())
