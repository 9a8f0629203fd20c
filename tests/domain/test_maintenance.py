"""What the API says of a TPU's next maintenance is reported, and changes nothing."""

import pytest

from orchestrator.domain.machines.maintenance import Maintenance, maintenance_of, maintenance_text
from orchestrator.domain.observation import Present
from orchestrator.planning.decide import decide
from tests.planning.worlds import NOW, node, record, spec, world

SHOWN = {
    "type": "SCHEDULED", "canReschedule": False, "maintenanceStatus": "PENDING",
    "windowStartTime": "2027-01-15T08:00:00.123456789Z", "windowEndTime": "2027-01-15T11:00:00Z",
}  # fmt: skip


def test_a_maintenance_is_read_as_the_schema_has_it():
    """Times in RFC 3339, also with nanoseconds."""
    assert maintenance_of(SHOWN) == Maintenance("PENDING", "SCHEDULED", 1_800_000_000.0, 1_800_010_800.0)


@pytest.mark.parametrize(
    "shown",
    [
        {"maintenanceStatus": "UNKNOWN", "type": "UNKNOWN_TYPE"},
        {"windowStartTime": "soon", "windowEndTime": 7, "later": [{}]},
    ],
)
def test_what_cannot_be_read_is_skipped(shown):
    """It is a hint only; an answer of tomorrow breaks nothing."""
    assert maintenance_of(shown) == Maintenance()


@pytest.mark.parametrize("shown", [None, {}, "soon", []])
def test_nothing_is_no_maintenance(shown):
    """Nor is what has another form."""
    assert maintenance_of(shown) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "scheduled maintenance announced for 2027-01-15 08:00 UTC"),
        ({"maintenanceStatus": "ONGOING"}, "scheduled maintenance now until 2027-01-15 11:00 UTC"),
        ({"type": "", "windowStartTime": ""}, "maintenance announced"),
    ],
)
def test_a_maintenance_is_reported_with_its_time(change, text):
    """And without what the API does not say."""
    assert maintenance_text(maintenance_of({**SHOWN, **change})) == text
    assert maintenance_text(None) == ""


@pytest.mark.parametrize("status", ["PENDING", "ONGOING"])
def test_a_tpu_that_works_is_never_thrown_away_for_it(status):
    """It may well train on through it."""
    found = node(maintenance=Maintenance(status, "SCHEDULED", NOW, NOW + 60))
    assert decide(spec(), world(nodes=Present((found,))), record()).empty
