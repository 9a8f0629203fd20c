"""Use cases are tested with nothing of the person who runs the tests, as commands are."""

from tests.cli.conftest import nobody

__all__ = ["nobody"]
