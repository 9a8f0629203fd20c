"""Which request a refusal answers: the controller on the VM has a journal of its own."""

from dataclasses import replace

import pytest

from orchestrator.advice.explain.explain import explain
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Refusal, Span
from orchestrator.errors import Retry
from tests.advice.test_explain import NO_NODE, WRITTEN, item, observed
from tests.planning.worlds import NOW, ZONE, record, spec

SECOND = {"incarnation": 2, "accepted": False, "requested_at": 0.0}
MADE = (Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 8, NOW - 4),)


def journal(message, spans=(), *after):
    """Return what is said of the first TPU's request when a refusal with this message came later."""
    refusal = Refusal(NOW - 2, ZONE, Retry.QUOTA, message, code="TPU-350")
    facts = observed(record(refusals=(refusal,), spans=spans, **SECOND), wants=spec(), **NO_NODE)
    evidence = item("tpu", explain(replace(facts, journal=(WRITTEN, *after)))).evidence
    text = next(one.message for one in evidence if one.source == "journal")
    return text.removeprefix("create TPU demo-tpu-g1 (there is none yet): ")


@pytest.mark.parametrize(
    ("message", "spans", "said"),
    [
        ("create TPU node 'demo-tpu-g2' in z: no quota", (), "done"),
        ("create TPU demo-tpu-g2 in z: no quota", (), "done"),
        ("no quota", MADE, "done"),
        ("create TPU demo-tpu-g1 in z: no quota", (), "accepted, then refused (TPU-350)"),
        ("no quota", (), "accepted, then refused (TPU-350)"),
    ],
    ids=["another TPU's call", "another TPU's operation", "it was made", "its own", "not named"],
)
def test_a_refusal_is_of_the_tpu_that_it_names_and_of_none_that_was_made(message, spans, said):
    """The first TPU has trained; what was refused is the second one, which the loop on the VM requested."""
    assert journal(message, spans) == said


def test_a_deletion_is_refused_by_no_refusal():
    """It came after the request, and before the answer."""
    deleted = replace(WRITTEN, at=NOW - 3, verb="delete", name="demo-tpu-g0")
    assert journal("no quota", (), deleted) == "accepted, then refused (TPU-350)"
