"""All scenarios are here, each under its own number."""

import re
from pathlib import Path

from tests.kit.figures import record_figures


def test_there_are_thirty_scenarios():
    """S01 to S30, none missing and none invented."""
    texts = [path.read_text() for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    numbers = [int(n) for text in texts for n in re.findall(r"^def test_s(\d\d)_", text, re.MULTILINE)]
    assert set(numbers) == set(range(1, 31))
    record_figures(
        "scenarios", "Scenarios seen elsewhere",
        "Each plays what broke another launcher, on a virtual clock, with the real command line and clients.",
        {"scenarios": len(set(numbers)), "tests": len(numbers)},
    )  # fmt: skip
