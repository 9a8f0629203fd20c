"""What the tests of the engine share."""

import pytest

from tests.engine.engine_lab import Lab


@pytest.fixture
def lab(tmp_path):
    """Return a cloud on a virtual clock, with short latencies."""
    return Lab(tmp_path)
