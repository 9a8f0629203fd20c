"""What a rehearsal says before its runs: how long they are, and what the settings are for that it adds."""

import random
from types import SimpleNamespace

import pytest

from orchestrator.advice.rehearsal.run import Fault, ObservedRun
from orchestrator.app.rehearsal import rehearse
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Outcome
from orchestrator.domain.spec import JobSpec
from tests.planning.worlds import spec

T = 1_800_000_000.0
WHOLE = ObservedRun(
    Outcome.DONE, heartbeats=(Heartbeat(1, 0, Phase.DONE, T + 66, step=100, timings={"boot": T}),)
)


class StandInSandbox:
    """Keeps what is said, and runs nothing."""

    def __init__(self, target):
        self.said, self.flags = [], ()
        self.session = SimpleNamespace(spec=spec(job=JobSpec(command="python train.py", target_steps=target)))

    def say(self, text, style=""):
        self.said.append(text)

    scene = say

    def run(self, *words):
        pass

    take = run


def said(monkeypatch, target, *settings):
    """Return what a rehearsal with one fault says."""
    monkeypatch.setattr(rehearse._Rehearsal, "_run", lambda *_: WHOLE)
    sandbox = StandInSandbox(target)
    rehearse._Rehearsal(sandbox, settings, [Fault.NOTICE], (), random.Random(0)).judged(compare=True)
    return sandbox.said


@pytest.mark.parametrize(("target", "end"), [(14000, "to step 14000"), (None, "to its end")])
def test_a_rehearsal_says_how_long_its_runs_are_and_what_makes_them_shorter(monkeypatch, target, end):
    """At 100,000 steps nobody waits for two runs; before the second one the length of the first is known."""
    lines = said(monkeypatch, target)
    assert f"twice on this computer, each time {end}" in lines[0]
    assert "`--set job.target_steps=N`" in lines[0]
    assert "Undisturbed it took 1 min 6 s; each fault adds the start of a machine." in lines


def test_the_settings_that_it_adds_are_explained_unless_the_user_chose_them(monkeypatch):
    """They stand in the commands that are shown."""
    explained = [line for line in said(monkeypatch, None) if line.startswith("(job.failures=")]
    assert [line.partition(":")[0] for line in explained] == ["(job.failures=1", "(job.failures=2"]
    assert not any(line.startswith("(job.failures=") for line in said(monkeypatch, None, "job.failures=3"))
