"""The pytest fixture `gcp`: write `pytest_plugins = ["orchestrator.testing.plugin"]` into conftest.py."""

from collections.abc import Iterator

import pytest

from orchestrator.testing.google_cloud import GoogleCloud


@pytest.fixture
def gcp() -> Iterator[GoogleCloud]:
    """Give an empty Google Cloud that answers the official clients of this process; no account, no network."""
    with GoogleCloud().installed() as cloud:
        yield cloud
