"""What a run plays: which records, for how long, and who meets there."""

from dataclasses import replace

from benchmarks.policies.market import Latency, Stress
from benchmarks.policies.replay import AUTO, NO_NOTICE, POLICIES, RACE, PolicyComparison
from benchmarks.policies.trace import SETS

HOURS = 40.0
"""Hours of a record that each seed plays in a normal run. The large record is always played whole."""
ALL = tuple(policy.name for policy in POLICIES)
EAGER, CRON = "SkyPilot EAGER_NEXT_REGION", "2020 design (cron, one zone)"
RACE_AUTO, NO_NOTICE_AUTO = f"{RACE}{AUTO}", f"{NO_NOTICE}{AUTO}"
TITLES = {
    "west": "V100, one region",
    "gang4": "4 V100 at once",
    "gang16": "16 V100 at once",
    "k80": "K80",
    "k80x8": "8 K80",
    "v100pair": "V100, 2022",
    "v100x8": "8 V100",
}


def main_comparison() -> PolicyComparison:
    """Return the large record: nine zones in three regions, 45 days."""
    return PolicyComparison("V100, nine zones", SETS["v100"](), ALL)


def other_comparisons(hours: float | None) -> list[PolicyComparison]:
    """Return the other records."""
    return [PolicyComparison(title, SETS[name](), ALL, hours) for name, title in TITLES.items()]


def stress_comparison(hours: float | None) -> PolicyComparison:
    """Return the large record thinned to what TPUs show."""
    return PolicyComparison(
        "TPU stress", SETS["v100"](), ALL, None if hours is None else 4 * hours, stress=Stress()
    )


def slower_comparisons(hours: float | None) -> list[PolicyComparison]:
    """Return the large record with machines that are READY earlier and later."""
    who = (CRON, EAGER, RACE)
    return [
        PolicyComparison(
            f"READY after {create:.0f} s", SETS["v100"](), who, hours, replace(Latency(), create=create)
        )
        for create in (60.0, 180.0, 300.0)
    ]
