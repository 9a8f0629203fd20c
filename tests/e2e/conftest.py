"""The stage of each test."""

from collections.abc import Iterator

import pytest

from tests.e2e.stage import Stage


@pytest.fixture
def stage(tmp_path) -> Iterator[Stage]:
    """Return an empty stage; at the end it must leave no process, no mount and no file."""
    one = Stage(tmp_path)
    try:
        yield one
    finally:
        one.close()
