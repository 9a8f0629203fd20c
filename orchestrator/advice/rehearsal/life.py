"""One run of a rehearsal, from `up` to its end, as far as it was seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.advice.rehearsal.moments import Pace
from orchestrator.advice.rehearsal.same_bytes import Prints
from orchestrator.domain.observation import Heartbeat, Phase
from orchestrator.domain.plan import Outcome

UNTOLD = frozenset({"", "commits"})
"""Sources of a step that the job itself did not tell (`Heartbeat.progress_from`)."""


class Kill(Enum):
    """Name the ways in which a rehearsal takes machines away."""

    NOTICE = "notice"
    KILL = "kill"
    SAVE = "save"
    RESTORE = "restore"
    TWICE = "twice"
    VM = "vm"


@dataclass(frozen=True)
class Blow:
    """
    Remember one injected failure: what the job had reported before it, as far as it was heard.

    *step* is the last step heard of, *committed* the newest committed checkpoint; *at* is in seconds since
    the epoch.
    """

    kill: Kill
    incarnation: int
    at: float
    step: int | None
    committed: int | None


@dataclass(frozen=True)
class Save:
    """Name a complete checkpoint and the incarnation that made it."""

    step: int
    incarnation: int


@dataclass(frozen=True)
class Life:
    """
    Hold what one run has shown. *beats* are the last reports of all incarnations.

    *saves* are complete in the bucket, *written* also those that were only seen on a machine's disk, both in
    the order of sight. *steps* are all that heartbeats told, *losses* (step, loss) by incarnation. *prints*
    tell the bytes of the checkpoints that are left, by step. *log* is the end of the job's own output.
    """

    outcome: Outcome | None
    reason: str = ""
    beats: tuple[Heartbeat, ...] = ()
    blows: tuple[Blow, ...] = ()
    saves: tuple[Save, ...] = ()
    written: tuple[Save, ...] = ()
    steps: frozenset[int] = frozenset()
    losses: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    prints: Mapping[int, Prints] = field(default_factory=dict)
    torn: int = 0
    log: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Say whether the job reached its end."""
        return self.outcome is Outcome.DONE

    @property
    def chain(self) -> dict[int, Heartbeat]:
        """Return the last report of worker 0 of each incarnation, oldest first."""
        return {b.incarnation: b for b in sorted(self.beats, key=lambda b: b.incarnation) if b.worker == 0}

    @property
    def tells_steps(self) -> bool:
        """Say whether the job told steps, which are more than those of its checkpoints."""
        return any(b.progress_from not in UNTOLD for b in self.beats)

    @property
    def silent(self) -> bool:
        """Say whether neither a step nor a checkpoint was ever seen."""
        committed = any(b.committed_step is not None for b in self.beats)
        return not self.saves and not self.steps and not committed

    @property
    def loss(self) -> float | None:
        """Return the last loss that the last incarnation reported."""
        chain = self.chain
        return chain[max(chain)].loss if chain else None

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the first machine's boot to the last report, None when nobody reported."""
        if not self.beats:
            return None
        started = min(b.timings.get("boot", b.updated) for b in self.beats)
        return max(b.updated for b in self.beats) - started

    @property
    def failed(self) -> Heartbeat | None:
        """Return the report of the worker whose job failed."""
        ended = [b for b in self.beats if b.phase is not Phase.DONE]
        return max(ended, key=lambda b: (b.incarnation, b.updated), default=None)

    @property
    def pace(self) -> Pace:
        """Return what the moments of failures in another run are chosen by."""
        last = max(self.steps, default=None) if self.tells_steps else None
        marks = [(b.updated, [b.timings.get(m, 0.0) for m in ("setup_done", "spawned")]) for b in self.beats]
        spans = [updated - max(begun) for updated, begun in marks if max(begun)]
        return Pace(last, len({s.step for s in self.saves}), max(spans, default=None))
