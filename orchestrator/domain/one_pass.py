"""What one pass over a deployment has seen, decided and failed to do."""

from dataclasses import dataclass

from orchestrator.domain.observation import World
from orchestrator.domain.plan import FailedChange, Plan


@dataclass(frozen=True)
class Pass:
    """Hold the observation, the plan and the failures of one pass."""

    world: World
    plan: Plan
    failures: tuple[FailedChange, ...] = ()
