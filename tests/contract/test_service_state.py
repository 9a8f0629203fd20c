"""What a machine writes of a program that it keeps running, and what we read."""

import re
from pathlib import Path

import pytest

from orchestrator.contract.service_state import ServicePhase, service_state

TEMPLATES = Path(__file__).parents[2] / "templates"


@pytest.mark.parametrize("name", ["run-watch.sh.j2", "run-sidecars.sh.j2"])
def test_each_word_of_the_scripts_is_known(name):
    """Also those with a reason behind them."""
    words = re.findall(r'^ *note "?([^"\n]+)', (TEMPLATES / name).read_text(), re.MULTILINE)
    assert {"starting", "installing", "running", "failed: $1"} <= set(words)
    assert [word for word in words if service_state(word).phase is ServicePhase.OTHER] == []


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("failed: no network", ServicePhase.FAILED),
        ("ended with status 1", ServicePhase.ENDED),
        ("failing over", ServicePhase.OTHER),
        ("", ServicePhase.OTHER),
    ],
)
def test_the_first_word_decides_and_the_whole_text_is_stored(text, phase):
    """People read the reason."""
    assert (service_state(text).phase, service_state(text).text) == (phase, text)
