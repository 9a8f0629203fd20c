"""The lab of each test."""

from tests.e2e.conftest import lab

__all__ = ["lab"]
