"""Explain how often the job is asked to save (`job.checkpoint.every`), as far as the controller knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.contract.interval import PRIOR_SAVE, ZoneLosses, saving_interval, time_between_losses
from orchestrator.domain.machines.capacity import CapacityHistory, zone_history
from orchestrator.domain.observation import Heartbeat
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import span_text

IGNORED = 2.0
"""Ratio of actual to requested interval from which on the job counts as ignoring the interval."""
ASSUMED = "assumed"


@dataclass(frozen=True)
class SaveInterval:
    """
    The *seconds* between two saves that the job is told; None if the job decides.

    *cost* is how many seconds a save stops the training, *cost_from* the source of that number (measured,
    reported, declared, assumed), *apart* the actual seconds between saves; None if unknown or not used.
    """

    seconds: float | None
    cost: float | None = None
    cost_from: str = ""
    time_between_losses: float | None = None
    apart: float | None = None

    @property
    def every(self) -> str:
        """Return the interval in words, for example `every 4 min 28 s`."""
        return "as the job decides" if self.seconds is None else f"every {span_text(self.seconds)}"

    @property
    def why(self) -> str:
        """Return `a save costs 5.0 s (assumed), unsaved work is lost every 2 h 0 min`, empty for nothing known."""
        parts = []
        if self.cost is not None:
            cost = f"{self.cost:.1f} s" if self.cost < 10 else span_text(self.cost)
            doing = "costs" if self.seconds is not None else "stops the training for"
            parts.append(f"a save {doing} {cost} ({self.cost_from})")
        if self.time_between_losses is not None:
            parts.append(f"unsaved work is lost every {span_text(self.time_between_losses)}")
        if self.seconds is not None and self.apart is not None and self.apart > IGNORED * self.seconds:
            parts.append(f"the job itself saves every {span_text(self.apart)}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """Return interval and reason in one line."""
        # What a save costs is the reason of an interval, and only a fact beside one that the job decides.
        between = "; " if self.seconds is None else ": "
        return f"{self.every}{between}{self.why}" if self.why else self.every

    def as_dict(self) -> dict[str, object]:
        """Return the `--json` form, times in seconds."""
        return {
            "every_s": self.seconds, "cost_s": self.cost, "cost_from": self.cost_from,
            "time_between_losses_s": self.time_between_losses, "apart_s": self.apart, "text": self.text,
        }  # fmt: skip


def foreseen_interval(spec: Spec, history: CapacityHistory, tpu_type: str, zone: str) -> SaveInterval | None:
    """
    Return the interval that a first machine in *zone* will tell its job, from the history of TPUs there.

    None if the job decides. From then on the machine adjusts it by its own measurements (`agent/pace.py`).
    """
    checkpoint = spec.job.checkpoint
    if checkpoint.every is None:
        return None
    if checkpoint.every != "auto":
        return SaveInterval(float(checkpoint.every))
    there = zone_history(history, zone, tpu_type)
    between_losses = time_between_losses((), ZoneLosses(there.lived, there.lives))
    cost, whence = (
        (PRIOR_SAVE, ASSUMED) if checkpoint.save_seconds is None else (checkpoint.save_seconds, "declared")
    )
    return SaveInterval(saving_interval(cost, between_losses), cost, whence, between_losses)


def reported_interval(beats: Sequence[Heartbeat]) -> SaveInterval | None:
    """Return the interval that the machines tell the job, with what they measured; None if none is reported."""
    known = [beat for beat in beats if beat.save_every is not None or beat.save_cost is not None]
    if not known:
        return None
    # The shortest one, because a save that one worker requests is made by the whole slice.
    one = min(known, key=lambda beat: (beat.save_every or 0.0, beat.worker))
    return SaveInterval(
        one.save_every, one.save_cost, one.save_cost_from, one.time_between_losses, one.save_apart
    )
