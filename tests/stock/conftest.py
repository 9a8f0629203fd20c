"""The stage of each test."""

from tests.e2e.conftest import stage

__all__ = ["stage"]
