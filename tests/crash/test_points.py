"""
A kill at every point of seven commands leaves nothing that the next command does not put right (R1).

Here a sample of the points is tried; `python -m tests.crash` tries all of them, and all pairs.
"""

import pytest

from tests.crash.explore import Found, begun, pairs, points_of, singles
from tests.crash.ports import called_methods, mutating_methods
from tests.crash.scenarios import SCENARIOS
from tests.crash.stage import HERE, one_thread

EVERYONE = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def none_of(problems):
    """Fail with the problems, if there are any."""
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:5])


@EVERYONE
def test_a_kill_at_a_point_is_put_right_from_any_computer(tmp_path, scenario):
    """Each way to go on after it ends well, on the same computer and on another one that has to wait."""
    found = Found()
    singles(tmp_path, scenario, found, direct=True, every=7)
    none_of(found.problems)
    assert found.points >= 20
    assert found.singles >= 10


@EVERYONE
def test_a_second_kill_while_the_first_is_put_right(tmp_path, scenario):
    """Pairs of points: one in the command, one in what goes on after it."""
    found = Found()
    pairs(tmp_path, scenario, found, firsts=13, seconds=11)
    none_of(found.problems)


@pytest.mark.parametrize("scenario", SCENARIOS[:3], ids=lambda scenario: scenario.name)
def test_through_the_official_clients(tmp_path, scenario):
    """The same, with every call made by Google's clients."""
    found = Found()
    singles(tmp_path, scenario, found, direct=False, every=9, places=(HERE,))
    none_of(found.problems)


def test_every_mutating_method_of_every_port_has_its_points(tmp_path):
    """A new one that the engine calls and no scenario meets fails here, with its name."""
    met = set()
    for number, scenario in enumerate(SCENARIOS):
        with one_thread(begun(tmp_path / str(number), scenario, direct=True)) as stage:
            points_of(stage)
            met |= {method for methods in stage.seen.values() for method in methods}
    assert sorted(called_methods() - met) == []
    assert sorted(met - mutating_methods()) == [], "a method that only reads has changed something"
