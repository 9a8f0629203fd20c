"""What `explain` says of the end of a deployment that goes on: without a watcher nothing ends it."""

from dataclasses import replace

from orchestrator.advice.explain.explain import explain
from tests.advice.test_explain import EXPIRED, NOW, item, observed
from tests.planning.worlds import record, spec

STARTED = record(started_at=NOW - 60)


def end(**given):
    """Return what is next for the deployment, and when."""
    found = item("deployment", explain(observed(STARTED, **given)))
    return found.next, found.when


def test_with_a_watcher_it_ends_with_the_job_or_its_ttl():
    """Whichever is first; the ttl has a time."""
    text, when = end()
    assert text.startswith("it ends with the job, at the latest when its ttl of ")
    assert when is not None


def test_without_a_watcher_only_a_safety_net_ends_it():
    """Neither the end of the job nor the ttl is promised, also if the watcher has lost its lease."""
    for watcher in (None, EXPIRED):
        text, when = end(watcher=watcher)
        assert text.startswith("no watcher runs, so it ends neither with the job nor with its ttl; ")
        assert "TPU: nothing deletes it by itself" in text
        assert "VM: Google deletes it after " in text
        assert when is None
        found = item("deployment", explain(observed(STARTED, watcher=watcher)))
        assert not found.needs_watcher, "a watcher is no safety net's condition"
    alone = spec(watch=replace(spec().watch, self_delete=True), vm="none")
    text, _ = end(watcher=None, wants=alone)
    assert "TPU: it deletes itself after " in text
    assert "VM" not in text
