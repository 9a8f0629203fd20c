"""The lab of the end-to-end tests, for the pages that are run: what they show fits a new project."""

from collections.abc import Iterator

import pytest

from tests.e2e.process_lab import ProcessLab


@pytest.fixture
def lab(tmp_path) -> Iterator[ProcessLab]:
    """Return an empty lab whose project is new."""
    one = ProcessLab(tmp_path, fresh_project=True)
    try:
        yield one
    finally:
        one.close()
