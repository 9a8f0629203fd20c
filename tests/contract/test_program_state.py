"""What a machine writes of a program that it keeps running, and what we read."""

import re
from pathlib import Path

import pytest

from orchestrator.contract.program_state import ProgramPhase, program_state

TEMPLATES = Path(__file__).parents[2] / "templates"


@pytest.mark.parametrize("name", ["run-watch.sh.j2", "run-sidecars.sh.j2"])
def test_each_word_of_the_scripts_is_known(name):
    """Also those with a reason behind them."""
    words = re.findall(r'^ *note "?([^"\n]+)', (TEMPLATES / name).read_text(), re.MULTILINE)
    assert {"starting", "installing", "running", "failed: $1"} <= set(words)
    assert [word for word in words if program_state(word).phase is ProgramPhase.OTHER] == []


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("failed: no network", ProgramPhase.FAILED),
        ("ended with status 1", ProgramPhase.ENDED),
        ("failing over", ProgramPhase.OTHER),
        ("", ProgramPhase.OTHER),
    ],
)
def test_the_first_word_decides_and_the_whole_text_is_stored(text, phase):
    """People read the reason."""
    assert (program_state(text).phase, program_state(text).text) == (phase, text)
