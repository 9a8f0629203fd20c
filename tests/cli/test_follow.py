"""`--follow` of the commands that only look, and `--watch`, by which other tools call it."""

import pytest

from orchestrator.app.fleet import usage
from orchestrator.cli.main import run
from orchestrator.cli.views import all_deployments, fleet_usage

LOOKS = {
    ("status", "--all"): (all_deployments, "show_all"),
    ("fleet", "queue"): (fleet_usage, "show_queue"),
}


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [((), False), (("-f",), True), (("--follow",), True), (("-w",), True), (("--watch",), True)],
)
@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_a_command_that_looks_goes_on_when_asked_to_under_either_name(look, words, goes_on, monkeypatch):
    """Without it, the command looks once."""
    asked = []
    monkeypatch.setattr(*LOOKS[look], lambda *_, follow, **more: asked.append(follow))
    monkeypatch.setattr(usage, "QueueObserver", lambda *_: None)
    assert (run([*look, *words]), asked) == (0, [goes_on])


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_the_help_of_a_command_that_looks_has_one_name_for_following(look, capsys):
    """`watch` is the command that acts."""
    run([*look, "--help"])
    text = capsys.readouterr().out
    assert "-f, --follow" in text
    assert "--watch" not in text
