"""
Which ranges of a firewall rule let Identity-Aware Proxy in.
"""

import pytest

from orchestrator.cloud.probe import _covers
from orchestrator.core.doctor.google import IAP_RANGE


@pytest.mark.parametrize(
    ("ranges", "enough"),
    [
        ([IAP_RANGE], True),
        (["0.0.0.0/0"], True),
        (["::/0", "35.235.0.0/16"], True),
        (["35.235.240.0/21", "35.235.248.0/21"], False),
        (["10.128.0.0/9", "::/0"], False),
        ([], False),
    ],
)
def test_a_rule_must_hold_all_of_the_range(ranges, enough):
    """A part is not enough: the next connection comes from the other one."""
    assert _covers(ranges, IAP_RANGE) is enough
