"""The lab of each test, and what some of them need of this computer."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.process_lab import ProcessLab


@pytest.fixture
def lab(tmp_path) -> Iterator[ProcessLab]:
    """Return an empty lab; at the end it must leave no process, no mount and no file."""
    one = ProcessLab(tmp_path)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="session")
def slurm_packages() -> None:
    """
    Skip a test where this computer cannot fetch Slurm's packages.

    The question takes seconds of computing: it is not asked while tests are collected.
    """
    words = ["apt-get", "download", "--print-uris", "-qq", "slurmctld"]
    if shutil.which("apt-get") is None or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("needs apt-get with Slurm's packages")
