"""What a seed means for a fleet: how many nodes and tasks, and what goes wrong how often."""

from dataclasses import dataclass
from random import Random

ZONES = ("us-central1-b", "us-central1-c", "us-central1-f")
MINUTE = 60.0
FAULTS = (
    "preempt", "preempt", "preempt with notice", "machine death", "freeze", "cut off", "slurm forgets a task",
    "slurm forgets its state", "slurm loses sight of a task", "slurm queues late", "controller out of reach",
    "stockout", "zombie",
)  # fmt: skip
ERRANDS = (
    "submit", "submit", "submit again", "cancel a task", "cancel a job", "up", "resize", "queue", "status",
    "up elsewhere", "submit, killed", "cancel, killed", "up, killed",
)  # fmt: skip
LATER = ("hold", "release", "retry", "submit after", "hold, killed", "release, killed", "retry, killed")
"""Errands that are drawn apart: the others of a seed stay what they were."""
WIDE = 50
"""One seed of so many has 100 nodes; most have few, where a single preemption weighs more."""


@dataclass(frozen=True)
class FleetCase:
    """One run: *faults* and *errands* are (seconds after the start, what)."""

    seed: int
    nodes: int
    zones: tuple[str, ...]
    minutes: float
    tasks: int
    steps: int
    faults: tuple
    errands: tuple
    watch_kills: tuple
    errors: float
    lost_answers: float
    budget: float | None
    leaves_from: str
    min_idle: int | None


def draw(seed):
    """Return the case of *seed*."""
    r = Random(f"fleet {seed}")
    wide = seed % WIDE == WIDE - 1
    nodes = 100 if wide else r.choice((1, 1, 2, 2, 3, 3, 4, 5, 8, 12))
    minutes = r.uniform(6, 10) if wide else r.uniform(15, 40)
    hard = r.random()
    count = r.randint(1, 4 + nodes // 2) if hard < 0.8 else r.randint(4, 10 + nodes)
    faults = tuple(sorted((r.uniform(0, minutes * MINUTE), r.choice(FAULTS)) for _ in range(count)))
    errands = tuple(
        sorted((r.uniform(0, minutes * MINUTE), r.choice(ERRANDS)) for _ in range(r.randint(0, 6)))
    )
    more = Random(f"fleet growth {seed}")
    errands += tuple(
        (more.uniform(0, minutes * MINUTE), more.choice(LATER)) for _ in range(more.randint(0, 4))
    )
    min_idle = more.choice((None, None, 0, 1)) if not wide else None
    return FleetCase(
        seed, nodes, tuple(r.sample(ZONES, r.choice((1, 2, 3)))), minutes,
        tasks=r.randint(1, 2 * nodes + 2), steps=r.choice((15, 30, 60)), faults=faults,
        errands=tuple(sorted(errands)),
        watch_kills=tuple(
            (r.randint(1, 60 + 10 * nodes), r.choice(("before", "after"))) for _ in range(r.randint(0, 3))
        ),
        errors=r.choice((0.0, 0.0, 0.02, 0.1)), lost_answers=r.choice((0.0, 0.0, 0.02, 0.1)),
        budget=round(nodes * r.uniform(0.5, 3.0), 2) if r.random() < 0.1 and not wide else None,
        leaves_from=r.choice(("home", "home", "elsewhere")), min_idle=min_idle,
    )  # fmt: skip
