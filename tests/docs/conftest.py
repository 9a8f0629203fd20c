"""The stage of the end-to-end tests, for the pages that are run: what they show fits a new project."""

from collections.abc import Iterator

import pytest

from tests.e2e.stage import Stage


@pytest.fixture
def stage(tmp_path) -> Iterator[Stage]:
    """Return an empty stage whose project is new."""
    one = Stage(tmp_path, fresh_project=True)
    try:
        yield one
    finally:
        one.close()
