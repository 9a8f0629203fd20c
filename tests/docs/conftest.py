"""
The stage of the end-to-end tests, for the pages that are run.
"""

from tests.e2e.conftest import stage

__all__ = ["stage"]
