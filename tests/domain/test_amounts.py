"""How amounts are written for people."""

import pytest

from orchestrator.domain.text.amounts import span_text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (125, "2 min 5 s"), (3840, "1 h 4 min"), (604740, "6 d 23 h")]
)
def test_a_duration_is_printed_in_two_units(seconds, text):
    """Nobody reckons with 167 hours."""
    assert span_text(seconds) == text
