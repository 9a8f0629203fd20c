"""Kill at every point, and at every point of what comes after; see that whoever comes back ends well."""

import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

from tests.crash.abandoned import check_abandoned
from tests.crash.crash_lab import ELSEWHERE, HERE, CrashLab, one_thread
from tests.crash.fingerprint import fingerprint
from tests.crash.oracle import observe

OLD = 20.0
"""Seconds by which lists of TPUs are late: less than the time between two witnesses of an absence."""


@dataclass
class CrashResult:
    """
    Count what was tried with one scenario, and keep what went wrong.

    *singles* counts the points at which one process is killed times the ways to go on; *kills* those at which
    a first, second ... is killed, *more* those that were not listed again since the state before them was
    alike. *states* is how many different ones there were: only these are gone on from.
    """

    points: int = 0
    seconds: float = 0.0
    singles: int = 0
    states: int = 0
    more: int = 0
    kills: list = field(default_factory=list)
    violations: list = field(default_factory=list)
    steps: dict = field(default_factory=dict)

    def add(self, other):
        """Add what was found at other points of the same scenario."""
        self.seconds += other.seconds
        self.singles += other.singles
        self.states += other.states
        self.violations += other.violations


def begun(folder, scenario, *, latency="scaled"):
    """Return a lab with the state in which a scenario begins."""
    lab = CrashLab(folder, latency=latency)
    lab.scenario = scenario
    scenario.prepare(lab)
    lab.change(**scenario.settings)
    lab.before = observe(lab, scenario.spec)
    return lab


def points_of(lab):
    """Return the points of a scenario's command."""
    return lab.points(lambda found: found.scenario.run(found, found.scenario.spec))


def singles(folder, scenario, found, *, first=0, every=1, latency="scaled"):
    """
    Kill at each of *every* so many points from the *first* on; go on in each way, here or elsewhere.

    Once more with the first lists of whoever comes too old to show what was made just before the kill.
    """
    lab = begun(folder, scenario, latency=latency)
    with one_thread(lab):
        for point, number in _states(lab, found)[first::every]:
            for way in scenario.ways:
                for place in (HERE, ELSEWHERE):
                    _try(lab, point, way, place, found, f"killed {point.what}; {way.name} ({place[:4]})")
                text = f"killed {point.what}; {way.name} (old lists)"
                _try(lab, point, way, HERE, found, text, old_lists=OLD)
                found.singles += 3 * number
            found.states += 1


def _states(lab, found):
    """Return the first of the points that leave states alike behind, and how many points these are."""
    lab.alike = partial(fingerprint, journal=True, lease=True)
    points = points_of(lab)
    found.points, found.steps = len(points), lab.callers
    firsts = {point.alike: point for point in reversed(points)}
    return [(firsts[alike], number) for alike, number in Counter(p.alike for p in points).items()]


def kills(folder, scenario, found, *, most=2, firsts=1, seconds=1, prune=True):
    """
    Kill at each point, let the same command go on, kill that at each of its points too, and so on.

    Up to *most* kills; of the points of the command each *firsts*-th is taken, of later ones each
    *seconds*-th. With *prune*, states that are alike for whoever comes next are gone on from once only: as
    deep as one likes, and to the very end where no new state is met. *found.kills* counts by depth.
    """
    lab = begun(folder, scenario, latency="instant")
    if prune:
        lab.alike = partial(fingerprint, journal=scenario.journal)
    known, way = {}, scenario.ways[0]
    with one_thread(lab):
        level, found.kills = [("", point) for point in points_of(lab)[::firsts]], []
        while level:
            found.kills.append(len(level))
            deeper = []
            for before, point in level:
                if prune and point.alike in known:
                    found.more += known[point.alike] * (len(found.kills) < most)
                    continue
                text, points = f"{before}killed {point.what}; ", []
                if len(found.kills) < most:
                    points = _go_on(lab, point, way, found, text)[::seconds]
                    deeper += [(text, later) for later in points]
                else:
                    _try(lab, point, way, HERE, found, f"{text}{way.name}")
                known[point.alike] = len(points)
                found.states += 1
            level = deeper


def _go_on(lab, point, way, found, text):
    """Put the state of a point back, let somebody come, and return the points of that."""
    points = []

    def go(lab, spec, place):
        points.extend(lab.points(lambda _: way.go(lab, spec, place)))

    _try(lab, point, replace(way, go=go), HERE, found, f"{text}{way.name}")
    return points


def _try(lab, point, way, place, found, text, old_lists=0.0):
    """Put the state of a point back, let somebody come, and note what does not hold."""
    lab.thaw(point.state)
    lab.age_lists(old_lists)
    try:
        way.go(lab, lab.scenario.spec, place)
        way.check(lab, lab.scenario, lab.before)
    except Exception as error:  # each violation is reported with its point, whatever it is
        where = traceback.extract_tb(error.__traceback__)[-1]
        found.violations.append(f"{text}: {type(error).__name__}: {error} ({where.name}:{where.lineno})")


def abandoned(folder, scenario, found, *, first=0, every=1):
    """
    Kill at each point, and nobody ever comes back (R14).

    The VM ends by itself, and the next command of another deployment ends the rest.
    """
    lab = begun(folder, scenario)
    with one_thread(lab):
        for point, number in _states(lab, found)[first::every]:
            lab.thaw(point.state)
            try:
                check_abandoned(lab, scenario.spec)
            except Exception as error:  # each violation is reported with its point, whatever it is
                found.violations.append(f"killed {point.what}; abandoned: {type(error).__name__}: {error}")
            found.singles += number
            found.states += 1
