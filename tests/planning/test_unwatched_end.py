"""The bill of a TPU that ended without a watcher."""

from dataclasses import replace

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.update_record import update_record
from orchestrator.pricing.cost_breakdown import cost_breakdown
from orchestrator.pricing.cost_so_far import cost_so_far, unwatched_ends
from tests.planning.worlds import NOW, ZONE, heartbeat, node, record, spec, world

CATALOG = load_catalog()
HOUR = 3600.0
SPAN = Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 4 * HOUR)
BILLED = record(spans=(SPAN,))
ENDED = Present((node(state=NodeState.PREEMPTED),))


def ended(*reports, was=BILLED, **overrides) -> Span:
    """Return the TPU's span after the observation of its end."""
    shown = {"heartbeat_interval": 30.0, "nodes": ENDED, "heartbeats": Present(reports), **overrides}
    return update_record(was, world(**shown)).spans[0]


def test_a_tpu_that_ended_unwatched_is_billed_until_the_report_that_it_owed():
    """Its last heartbeat is three hours old: it is counted 30 s longer, and when that was observed is kept."""
    found = ended(heartbeat(updated=NOW - 3 * HOUR), heartbeat(1, workers=2, updated=NOW - 3 * HOUR + 5))
    assert (found.until, found.end_observed) == (NOW - 3 * HOUR + 35, NOW)


def test_a_list_without_it_counts_like_a_preemption():
    """Another user has deleted it."""
    assert ended(heartbeat(updated=NOW - HOUR), nodes=Present(())).until == NOW - HOUR + 30


@pytest.mark.parametrize(
    ("reports", "overrides"),
    [
        ((), {}),
        ((heartbeat(updated=NOW - 80),), {}),
        ((heartbeat(incarnation=2, updated=NOW - HOUR),), {}),
        ((heartbeat(phase=Phase.DONE, updated=NOW - HOUR),), {}),
        ((heartbeat(phase=Phase.FAILED, updated=NOW - HOUR),), {}),
        ((heartbeat(updated=NOW - HOUR),), {"heartbeat_interval": None}),
        ((), {"heartbeats": Unknown("503")}),
    ],
    ids=["no report", "watched", "another's report", "done", "failed", "job on the VM", "unread reports"],
)
def test_where_no_report_tells_it_is_billed_until_its_end_was_observed(reports, overrides):
    """Never too little: what is not known is counted."""
    found = ended(*reports, **overrides)
    assert (found.until, found.end_observed) == (NOW, None)


def test_a_deletion_of_ours_is_billed_until_it_is_over():
    """Its workers stopped before it, and Google deletes for minutes."""
    asked = {"deleting:demo-tpu-g1": NOW - 60}
    was = record(spans=(SPAN,), first_seen=asked)
    assert ended(heartbeat(updated=NOW - HOUR), was=was, nodes=Present(())).until == NOW


def test_an_end_never_lies_before_the_start():
    """A report of the machine before under the same number gives no money back."""
    assert ended(heartbeat(updated=NOW - 9 * HOUR)).until == SPAN.since


def test_the_upper_sum_has_the_time_that_is_not_known():
    """A budget counts it; the saving compares the same time on both sides."""
    known = record(spans=(replace(SPAN, until=NOW - 3 * HOUR, end_observed=NOW),))
    sure = record(spans=(replace(SPAN, until=NOW - 3 * HOUR),))
    whole = record(spans=(replace(SPAN, until=NOW),))
    found, least = (cost_so_far(spec(), CATALOG, one, NOW) for one in (known, sure))
    assert found.known_usd == least.known_usd
    assert found.upper_usd == pytest.approx(cost_so_far(spec(), CATALOG, whole, NOW).upper_usd)
    (end,) = unwatched_ends(spec(), CATALOG, known)
    assert end.upper_usd == pytest.approx(found.upper_usd - least.upper_usd)
    parts, others = (cost_breakdown(spec(), CATALOG, one, (), NOW) for one in (known, sure))
    assert parts.upper_usd == pytest.approx(found.upper_usd)
    assert parts.lower_saved_usd == pytest.approx(others.lower_saved_usd)


def test_the_record_keeps_when_the_end_was_observed():
    """A later command counts the same."""
    known = record(spans=(replace(SPAN, until=NOW - 3 * HOUR, end_observed=NOW),))
    assert decode(encode(known, "demo"), "demo").spans == known.spans
