"""
Kill at every point, and at every point of what comes after; see that whoever comes back ends well.
"""

import traceback
from dataclasses import dataclass, field

from tests.crash.oracle import look
from tests.crash.stage import ELSEWHERE, HERE, Stage, one_thread


@dataclass
class Found:
    """
    Count what was tried with one scenario, and keep what went wrong.
    """

    points: int = 0
    singles: int = 0
    pairs: int = 0
    problems: list = field(default_factory=list)
    steps: dict = field(default_factory=dict)


def begun(folder, scenario, *, direct, latency="scaled"):
    """Return a stage with the world in which a scenario begins."""
    stage = Stage(folder, direct=direct, latency=latency)
    stage.scenario = scenario
    scenario.prepare(stage)
    stage.change(**scenario.settings)
    stage.before = look(stage, scenario.spec)
    return stage


def points_of(stage):
    """Return the points of a scenario's command."""
    return stage.points(lambda found: found.scenario.run(found, found.scenario.spec))


def singles(folder, scenario, found, *, direct, every=1, places=(HERE, ELSEWHERE), latency="scaled"):
    """Kill at each of *every* so many points, and go on in each way, on the same computer or another one."""
    stage = begun(folder, scenario, direct=direct, latency=latency)
    with one_thread(stage):
        points = points_of(stage)
        found.points, found.steps = len(points), stage.seen
        for point in points[::every]:
            for way in scenario.ways:
                for place in places:
                    _try(stage, point, way, place, found, f"killed {point.what}; {way.name} ({place[:4]})")
                    found.singles += 1


def pairs(folder, scenario, found, *, direct=True, firsts=1, seconds=1, latency="instant"):
    """
    Kill at each point, let the same command go on, and kill that at each of its points too.

    Of the first points each *firsts*-th is taken, of the second ones each *seconds*-th.
    """
    stage = begun(folder, scenario, direct=direct, latency=latency)
    way = scenario.ways[0]
    with one_thread(stage):
        for first in points_of(stage)[::firsts]:
            stage.thaw(first.world)
            for second in stage.points(lambda found: way.go(found, scenario.spec))[::seconds]:
                _try(stage, second, way, HERE, found, f"killed {first.what}; then {second.what}; {way.name}")
                found.pairs += 1


def _try(stage, point, way, place, found, text):
    """Put the world of a point back, let somebody come, and note what does not hold."""
    stage.thaw(point.world)
    try:
        way.go(stage, stage.scenario.spec, place)
        way.check(stage, stage.scenario, stage.before)
    except Exception as error:  # each problem is told with its point, whatever it is
        where = traceback.extract_tb(error.__traceback__)[-1]
        found.problems.append(f"{text}: {type(error).__name__}: {error} ({where.name}:{where.lineno})")
