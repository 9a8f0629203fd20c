"""
A kill at every point of a command leaves nothing that the next command does not put right (R1, R14).

Here a sample of the points is tried; `python -m tests.crash` tries all of them, and all pairs.
"""

import pytest

from tests.crash.crash_lab import one_thread
from tests.crash.explore import CrashResult, abandoned, begun, kills, points_of, singles
from tests.crash.ports import called_methods, mutating_methods
from tests.crash.scenarios import SCENARIOS
from tests.crash.sigkill import far, real_singles

EVERYONE = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def none_of(violations):
    """Fail with the violations, if there are any."""
    assert not violations, f"{len(violations)} violations:\n" + "\n".join(violations[:5])


@EVERYONE
def test_a_kill_at_a_point_is_put_right_from_any_computer(tmp_path, scenario):
    """Each way to go on after it ends well, on the same computer and on another one that has to wait."""
    found = CrashResult()
    singles(tmp_path, scenario, found, every=13)
    none_of(found.violations)
    assert found.points >= 18
    assert found.singles >= 4


@EVERYONE
def test_a_second_kill_while_the_first_is_put_right(tmp_path, scenario):
    """Pairs of points: one in the command, one in what goes on after it."""
    found = CrashResult()
    kills(tmp_path, scenario, found, firsts=29, seconds=17)
    none_of(found.violations)
    assert len(found.kills) == 2
    assert found.states >= 2


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.expires], ids=lambda scenario: scenario.name)
def test_a_deployment_without_its_watcher_ends_for_good(tmp_path, scenario):
    """The VM ends by itself; the next command of another deployment ends the TPU, and brings nothing back."""
    found = CrashResult()
    abandoned(tmp_path, scenario, found, every=1 if scenario.name == "down" else 9)
    none_of(found.violations)
    assert found.singles >= 2


def test_real_processes_are_killed(tmp_path):
    """SIGKILL of a process with its threads, files and locks; a fresh process finds the rest over HTTP."""
    with far() as requests:
        for scenario in (SCENARIOS[0], SCENARIOS[1], SCENARIOS[3]):
            found = CrashResult()
            real_singles(tmp_path / scenario.name, scenario, found, requests, first=7, every=29)
            none_of(found.violations)
            assert found.singles >= 1


def test_every_mutating_method_of_every_port_has_its_points(tmp_path):
    """A new one that the engine calls and no scenario meets fails here, with its name."""
    met = set()
    for number, scenario in enumerate(SCENARIOS):
        with one_thread(begun(tmp_path / str(number), scenario)) as lab:
            points_of(lab)
            met |= {method for methods in lab.callers.values() for method in methods}
    assert sorted(called_methods() - met) == []
    assert sorted(met - mutating_methods()) == [], "a method that only reads has changed something"
