"""Durations that people write with a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.text.units import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15s", 15), ("60m", 3600), ("12h", 43200), ("7d", 604800), ("1.5h", 5400), (" 2m ", 120)],
)
def test_units_are_read(text, seconds):
    """Seconds, minutes, hours and days are understood."""
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", 15, "0s", "-1s", "1w", "s", "1e3s", None, "9" * 400 + "d", "1m30s"]
)
def test_what_is_not_a_positive_time_with_a_unit_is_refused(text):
    """A bare number is refused, since its unit is unknown."""
    with pytest.raises(ValueError, match="write a positive time with a unit"):
        Duration.parse(text)


@given(st.integers(1, 3 * 10**9), st.sampled_from([1, 0.5, 0.25]))
def test_what_is_printed_is_read_back(number, share):
    """Printing loses nothing, so a record has the same settings."""
    duration = Duration(number * share)
    assert Duration.parse(str(duration)) == duration


def test_the_largest_fitting_unit_is_printed():
    """People read 7d, not 604800s."""
    assert [str(Duration(s)) for s in (604800, 3600, 90, 120)] == ["7d", "1h", "90s", "2m"]
