"""The pytest fixture `gcp`: write `pytest_plugins = ["orchestrator.testing.plugin"]` into conftest.py."""

from collections.abc import Iterator

import pytest

from orchestrator.testing.google_cloud import GoogleCloud


@pytest.fixture
def gcp() -> Iterator[GoogleCloud]:
    """Provide an empty Google Cloud behind the official clients; needs no account and no network."""
    with GoogleCloud().installed() as cloud:
        yield cloud
