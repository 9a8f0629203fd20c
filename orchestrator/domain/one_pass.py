"""What one pass over a deployment has seen, decided and failed to do."""

from dataclasses import dataclass

from orchestrator.domain.observation import Unknown, World
from orchestrator.domain.plan import FailedChange, Plan
from orchestrator.errors import Retry


@dataclass(frozen=True)
class Pass:
    """The observation, the plan and the failures of one pass."""

    world: World
    plan: Plan
    failures: tuple[FailedChange, ...] = ()

    @property
    def blind(self) -> Unknown | None:
        """Return an observation that failed for a permanent reason, else None."""
        observations = (self.world.nodes, self.world.vm, self.world.bucket)
        return next((s for s in observations if isinstance(s, Unknown) and s.retry is Retry.PERMANENT), None)
