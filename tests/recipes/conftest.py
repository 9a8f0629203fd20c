"""
The tests of recipes run only with TPUCTL_RECIPES=1: they need large frameworks and a long first install.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stage import Stage
from tests.recipes.kit import VENVS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skip the tests of this folder, with the reason, unless they are asked for."""
    if not os.environ.get("TPUCTL_RECIPES"):
        reason = "large frameworks; ask for them with TPUCTL_RECIPES=1"
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def stage(tmp_path) -> Iterator[Stage]:
    """Return an empty stage whose machines share the virtual environments; it leaves nothing behind."""
    one = Stage(tmp_path)
    one.environment["TPUCTL_VENV_CACHE"] = str(VENVS)
    try:
        yield one
    finally:
        one.close()
