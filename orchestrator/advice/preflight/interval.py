"""How often to save: Young and Daly's answer for the lifetimes that spot TPUs have."""

from collections.abc import Iterator
from math import exp
from typing import Final

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.advice.preflight.finding import Hit, Level, rule
from orchestrator.contract.interval import best_interval
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

LIFETIMES: Final = {"bad": 0.3 * 3600, "middling": 4 * 3600.0, "good": 12 * 3600.0}
"""Mean seconds between losses of a spot TPU, by zone: assumptions, not measured (docs/facts.md 5.4)."""
WORTH_SAYING: Final = 0.05
"""Share of the time lost beyond the best interval from which on it is said."""


@rule("save-interval", Level.WARN, Level.NOTE)
def save_interval(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[Hit]:
    """
    Look for saves that are too rare (each preemption loses work) or too frequent (each save takes time).

    Best is Young's and Daly's sqrt(2 x save time x mean lifetime). A zone's mean lifetime is not known, so
    three are shown: 0.3 h (bad), 4 h and 12 h (good). Told from 5 % of the time lost beyond the best; a note
    when only in a bad zone. Needs `job.checkpoint.every`; more exact with `job.checkpoint.save_seconds`.
    """
    every, cost = spec.job.checkpoint.every, spec.job.checkpoint.save_seconds or 0.0
    if every is None or every == "auto" or not spec.tpu.spot:
        return
    worse = {name: _beyond_best(every, cost, life) for name, life in LIFETIMES.items()}
    if max(worse.values()) < WORTH_SAYING:
        return
    shares = ", ".join(
        f"{lost_share(every, cost, life):.0%} at {life / 3600:g} h" for life in LIFETIMES.values()
    )
    message = f"a save every {every} loses {shares} of mean lifetime of a TPU"
    best = best_interval(cost, LIFETIMES["middling"]) if cost else 0.0
    fix = (
        f"save every {best / 60:.1f} min (best at 4 h), or write auto"
        if cost
        else "save more often; state save_seconds for a figure"
    )
    level = Level.NOTE if worse["middling"] < WORTH_SAYING and worse["good"] < WORTH_SAYING else Level.WARN
    yield Hit("job.checkpoint.every", message, fix, level)


def lost_share(every: float, save_seconds: float, lifetime: float) -> float:
    """
    Return the share of the time that saves and redone work take, losses coming at random (Daly's full form).

    Restarts are not in it: the interval does not change them.
    """
    exponent = min((every + save_seconds) / lifetime, 700.0)
    return 1 - (every / lifetime) / (exp(exponent) - 1) if exponent > 0 else 0.0


def _beyond_best(every: float, cost: float, lifetime: float) -> float:
    best = lost_share(best_interval(cost, lifetime), cost, lifetime) if cost else 0.0
    return lost_share(every, cost, lifetime) - best
