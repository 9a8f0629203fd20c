"""The patterns of `job.progress`: those that a line of output can make slow are refused."""

import re
import time

import pytest

from orchestrator.config.rules.progress_patterns import pattern_error
from orchestrator.contract.printed.choose import MAX_LINE
from tests.config.test_load import VALID, findings, places

TAKEN = [
    r"iter (\d+):",
    r"loss[:=]\s*([0-9.e+-]+)",
    r"\[(\d+)/\d+\].*?loss\s+(?P<step>\S+)",
    r"^\s*step\s*=\s*(\d+)\s*,",
    r"(?:step|iter)\s+(\d+)",
    r"(?i)it/s[^0-9]*([0-9.]+)",
    r"x.*y.*?(\d)z",
    r"(\d{1,3}(?:,\d)?)",
    r"a(?=b)([0-9]+)",
    r"((?:ab){2})",
]
SLOW = [
    r"(a+)+",
    r"((?:a|aa)*)",
    r"(?:\w+\s?)*(x)",
    r"(.*.*.*=)",
    r"(a*)(?:b*)*",
    r"((a)*b?)*",
    r"\d+\d+\d+\d+(x)",
]
HOSTILE = [
    "a" * 600,
    "1" * 600,
    " " * 600,
    "x y" * 200,
    "ab" * 300,
    "step " * 120,
    "a=1," * 150,
    "\u00e9" * 300,
]


@pytest.mark.parametrize("pattern", TAKEN)
def test_what_is_taken_is_fast_on_any_line(pattern: str) -> None:
    """Each is run against lines that are made to be slow, as long as the agent lets them be."""
    assert pattern_error("step", pattern) == ("", "")
    compiled = re.compile(pattern.encode())
    for line in HOSTILE:
        began = time.process_time()
        compiled.search(line.encode()[:MAX_LINE])
        assert time.process_time() - began < 1.0


@pytest.mark.parametrize("pattern", SLOW)
def test_what_can_take_for_ever_is_refused(pattern: str) -> None:
    """Repeats of repeats, alternatives that are repeated, and many repeats over everything."""
    message, hint = pattern_error("step", pattern)
    assert "repeat" in message or "groups" in message
    assert hint


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "is not a regular expression: missing ), unterminated subpattern at position 0"),
        (r"\d+", "has 0 groups, so it is unclear which one is the number"),
        (r"(\d+)/(\d+)", "has 2 groups, so it is unclear which one is the number"),
        (r"(\d)\1(?P<step>x)", "has a backreference"),
        ("x" * 301, "has 301 characters; at most 300 are allowed"),
        ("(\ud800)", "is not a regular expression"),
    ],
)
def test_what_is_no_pattern_is_said_plainly(pattern: str, message: str) -> None:
    """With what is wrong."""
    assert pattern_error("step", pattern)[0].startswith(message)


def test_a_wrong_pattern_is_reported_with_its_position() -> None:
    """File, line and column, as for every setting; all of them at once."""
    text = VALID.replace("watch:", "  progress:\n    step: 'iter \\d+'\n    loss: '(a+)+'\nwatch:")
    found = findings(text)
    assert places(found) == [(11, 11, "job.progress.step"), (12, 11, "job.progress.loss")]
