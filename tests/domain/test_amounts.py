"""How amounts are written for people."""

import pytest

from orchestrator.domain.text.amounts import at_most_text, progress_percent, span_text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (125, "2 min 5 s"), (3840, "1 h 4 min"), (604740, "6 d 23 h")]
)
def test_a_duration_is_printed_in_two_units(seconds, text):
    """Nobody reckons with 167 hours."""
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(408.156, "at most 409 USD"), (409.0, "at most 409 USD"), (19.461, "at most 19.47 USD"),
     (2.30, "at most 2.30 USD"), (0.00121, "at most 0.0013 USD"), (0.0, "at most 0.0000 USD")],
)  # fmt: skip
def test_what_it_costs_at_most_is_never_rounded_down(usd, text):
    """408.15 USD for 408.156 were not the most; and 2.30 is no 2.31, whatever binary fractions make of it."""
    assert at_most_text(usd) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.125, "12%"), (0.4875, "48%"), (0.29, "29%"), (0.996, "99%"), (1.0, "100%")]
)
def test_progress_is_rounded_down_so_that_only_the_end_is_all_of_it(share, text):
    """12.5% was shown as 12%, and 48.75% as 49%."""
    assert progress_percent(share) == text
