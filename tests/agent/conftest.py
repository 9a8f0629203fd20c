"""Fixtures of the agent's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agent_lab import AgentLab, running_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[AgentLab]:
    """Run a bucket, a metadata server and no machine yet."""
    with running_lab(tmp_path) as running:
        yield running
