"""A cloud that is gone under `logs -f` and `status -f`: one line, a counter, and a look a minute."""

from itertools import pairwise

from orchestrator.app.context.outage import Outage
from orchestrator.clock import VirtualClock
from orchestrator.errors import TransientError


def test_hundreds_of_failed_looks_are_a_few_lines_and_a_look_a_minute():
    """An hour without an answer: said once, again every few minutes with its counter, and when it is over."""
    clock, said, looks = VirtualClock(), [], []
    outage = Outage(clock, 2.0, said.append)
    while clock.monotonic() < 3600:
        looks.append(clock.monotonic())
        outage.failed(TransientError("no network"))
    outage.over()
    pauses = [later - earlier for earlier, later in pairwise(looks)]
    assert pauses[:6] == [2, 4, 8, 16, 32, 60]
    assert set(pauses[6:]) == {60}
    assert said[0] == "no network (TPU-400); trying again at least once a minute, until it answers"
    assert said[1].startswith("still no answer after 5 min")
    assert said[-1].startswith("it answers again after 1 h")
    assert len(said) <= 14


def test_a_look_that_failed_once_is_no_event():
    """It is said, and counted again the next time."""
    clock, said = VirtualClock(), []
    outage = Outage(clock, 2.0, said.append)
    for _ in range(2):
        outage.failed(TransientError("no network"))
        outage.over()
    assert len(said) == 2
