"""Explain how often the job is asked to save (`job.checkpoint.every`), as far as the controller knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.contract.interval import (
    PRIOR_SAVE_PAUSE,
    SHORTEST_PAUSE,
    ZonePreemptions,
    save_interval,
    time_between_interruptions,
)
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.capacity import CapacityHistory, zone_history
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import short_span_text, span_text

IGNORED = 2.0
"""Ratio of actual to requested interval from which on the job counts as ignoring the interval."""
ASSUMED = "assumed"
LEARNT = frozenset({"measured", "reported"})


@dataclass(frozen=True)
class SaveInterval:
    """
    The *seconds* between two saves that the job is told; None if the job decides.

    *save_pause* is how many seconds a save stops the training, *save_pause_from* the source of that number
    (measured, reported, declared, assumed), *observed* the actual seconds between saves; None if unknown or
    not used.
    """

    seconds: float | None
    save_pause: float | None = None
    save_pause_from: str = ""
    time_between_interruptions: float | None = None
    observed: float | None = None

    @property
    def in_words(self) -> str:
        """Return the interval in words, for example `every 4 min 28 s`."""
        return "as the job decides" if self.seconds is None else f"every {span_text(self.seconds)}"

    @property
    def message(self) -> str:
        """
        Return why, in words, empty for nothing known.

        For example `a save stops the training for 5.0 s (assumed), unsaved work is lost every 2 h 0 min`.
        """
        parts = []
        if self.save_pause is not None:
            pause = short_span_text(self.save_pause)
            # What machines learn is rounded up to what they can measure, and often less.
            if self.save_pause <= SHORTEST_PAUSE and self.save_pause_from in LEARNT:
                pause = f"at most {SHORTEST_PAUSE} s"
            parts.append(f"a save stops the training for {pause} ({self.save_pause_from})")
        if self.time_between_interruptions is not None:
            parts.append(f"unsaved work is lost every {span_text(self.time_between_interruptions)}")
        if self.seconds is not None and self.observed is not None and self.observed > IGNORED * self.seconds:
            parts.append(f"the job itself saves every {span_text(self.observed)}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """Return interval and reason in one line."""
        # The save pause is the reason of an interval, and only a fact beside one that the job decides.
        between = "; " if self.seconds is None else ": "
        return f"{self.in_words}{between}{self.message}" if self.message else self.in_words

    def as_dict(self) -> dict[str, object]:
        """Return the `--json` form, times in seconds."""
        return {
            "save_interval_s": self.seconds,
            "save_pause_s": self.save_pause, "save_pause_from": self.save_pause_from,
            "time_between_interruptions_s": self.time_between_interruptions,
            "observed_save_interval_s": self.observed, "message": self.text,
        }  # fmt: skip


def planned_interval(spec: Spec, history: CapacityHistory, tpu_type: str, zone: str) -> SaveInterval | None:
    """
    Return the interval that a first machine in *zone* will tell its job, from the history of TPUs there.

    None if the job decides. From then on the machine adjusts it by its own measurements
    (`agent/save_interval_tracker.py`).
    """
    checkpoint = spec.job.checkpoint
    if checkpoint.every is None:
        return None
    if checkpoint.every != "auto":
        return SaveInterval(float(checkpoint.every))
    there = zone_history(history, zone, tpu_type)
    between_interruptions = time_between_interruptions((), ZonePreemptions(there.lived, there.preemptions))
    save_pause, whence = (
        (PRIOR_SAVE_PAUSE, ASSUMED) if checkpoint.save_pause is None else (checkpoint.save_pause, "declared")
    )
    return SaveInterval(
        save_interval(save_pause, between_interruptions), save_pause, whence, between_interruptions
    )


def reported_interval(heartbeats: Sequence[Heartbeat]) -> SaveInterval | None:
    """Return the interval that the machines tell the job, with what they measured; None if none is reported."""
    known = [
        heartbeat
        for heartbeat in heartbeats
        if heartbeat.save_interval is not None or heartbeat.save_pause is not None
    ]
    if not known:
        return None
    # The shortest one, because a save that one worker requests is made by the whole slice.
    one = min(known, key=lambda heartbeat: (heartbeat.save_interval or 0.0, heartbeat.worker))
    return SaveInterval(
        one.save_interval,
        one.save_pause,
        one.save_pause_from,
        one.time_between_interruptions,
        one.observed_save_interval,
    )
