"""How often the job is asked to save (`job.checkpoint.every`), and why, as far as the controller knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.contract.interval import PRIOR_SAVE, ZoneLives, expected_life, saving_interval
from orchestrator.domain.amounts import span_text
from orchestrator.domain.capacity import Places, place_of
from orchestrator.domain.observation import Heartbeat
from orchestrator.domain.spec import Spec

IGNORED = 2.0
"""Times the interval that saves are apart from which on the job does not follow it."""
ASSUMED = "assumed"


@dataclass(frozen=True)
class SaveInterval:
    """
    Hold the *seconds* between two saves that the job is told, None when it decides that.

    *cost* is for how many seconds a save stops the training, known as *cost_from* says (measured, reported,
    declared, assumed), *life* the time between two losses of work, *apart* how far apart the saves are in fact;
    None where that is not known, or has no part in it.
    """

    seconds: float | None
    cost: float | None = None
    cost_from: str = ""
    life: float | None = None
    apart: float | None = None

    @property
    def every(self) -> str:
        """Return `every 4 min 28 s`."""
        return "when the job decides" if self.seconds is None else f"every {span_text(self.seconds)}"

    @property
    def why(self) -> str:
        """Return `a save costs 5.0 s (assumed), unsaved work is lost every 2 h 0 min`, empty for nothing known."""
        parts = []
        if self.cost is not None:
            cost = f"{self.cost:.1f} s" if self.cost < 10 else span_text(self.cost)
            parts.append(f"a save costs {cost} ({self.cost_from})")
        if self.life is not None:
            parts.append(f"unsaved work is lost every {span_text(self.life)}")
        if self.seconds is not None and self.apart is not None and self.apart > IGNORED * self.seconds:
            parts.append(f"the job itself saves every {span_text(self.apart)}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """Return both in one line."""
        return f"{self.every}: {self.why}" if self.why else self.every

    def as_dict(self) -> dict[str, object]:
        """Return it as `--json` prints it, times in seconds."""
        return {
            "every_s": self.seconds, "cost_s": self.cost, "cost_from": self.cost_from, "life_s": self.life,
            "apart_s": self.apart, "text": self.text,
        }  # fmt: skip


def foreseen_interval(spec: Spec, places: Places, tpu_type: str, zone: str) -> SaveInterval | None:
    """
    Return what a first machine in *zone* will tell its job, from what is known of TPUs there.

    None when the job decides. The machine goes on from there with what it sees itself (`agent/pace.py`).
    """
    checkpoint = spec.job.checkpoint
    if checkpoint.every is None:
        return None
    if checkpoint.every != "auto":
        return SaveInterval(float(checkpoint.every))
    there = place_of(places, zone, tpu_type)
    life = expected_life((), ZoneLives(there.lived, there.lives))
    cost, whence = (
        (PRIOR_SAVE, ASSUMED) if checkpoint.save_seconds is None else (checkpoint.save_seconds, "declared")
    )
    return SaveInterval(saving_interval(cost, life), cost, whence, life)


def reported_interval(beats: Sequence[Heartbeat]) -> SaveInterval | None:
    """Return what the machines tell the job and have seen of its saves, None for nothing."""
    known = [beat for beat in beats if beat.save_every is not None or beat.save_cost is not None]
    if not known:
        return None
    # The shortest: a save that one worker's clock asks for is made by all of a slice.
    one = min(known, key=lambda beat: (beat.save_every or 0.0, beat.worker))
    return SaveInterval(one.save_every, one.save_cost, one.save_cost_from, one.save_life, one.save_apart)
