"""What the tests of the engine share."""

import pytest

from orchestrator.threads import one_after_the_other
from tests.engine.engine_lab import EngineLab


@pytest.fixture(autouse=True)
def _in_order():
    """Make calls one after the other: each run of a test is the same."""
    with one_after_the_other():
        yield


@pytest.fixture
def lab(tmp_path):
    """Return a cloud on a virtual clock, with short latencies."""
    return EngineLab(tmp_path)
