"""Decide when a save that is still being observed counts as finished. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, Optional, Tuple

from orchestrator.contract.formats.base import LONG, PATIENT, QUIET, SaveState, SaveVerdict
from orchestrator.contract.formats.reading.saved_files import is_save

RESTLESS = 4
"""Consecutive changes after which a save that never settles is copied, between two of them."""
NEVER_RESTS = 16
"""The same for a save that never does: each look finds it changed."""
GAPS = 16
"""Number of changes by which the pauses of a program are known; one whose end was missed is forgotten then."""
RESTLESS_FILE = 2
"""The same for changes that left a single file of the same size, if its checksums prove each of them whole."""


@dataclass(frozen=True)
class FileState:
    """What shows that a file changed: its name in the save's folder, size, time and inode."""

    name: str
    size: int
    modified: int
    inode: int


States = Tuple[Tuple[FileState, ...], Tuple[FileState, ...]]


@dataclass(frozen=True)
class ObservedSave:
    """
    The verdict of a save when its files were *states*, since when, and its consecutive changes.

    *alike* counts consecutive changes that left names and sizes the same; *renewed* means that a file was
    replaced by another one. *counted* is when a change was counted last, *gaps* are the times between the
    newest changes, and *other* says that the last one brought another file.

    Of the files with the job's state, *latest* are those that the last change wrote over, *written* those since
    the save last counted as finished, and *together* those that were written over for each save so far, None
    before the first. *rests* means that the program left them alone after a save, *in_pieces* that it wrote over a
    whole one soon again, in place.
    """

    states: States
    judged: SaveVerdict
    since: float
    changes: int
    alike: int = 0
    renewed: bool = False
    counted: float = 0.0
    gaps: Tuple[float, ...] = ()
    other: bool = False
    latest: FrozenSet[str] = frozenset()
    written: FrozenSet[str] = frozenset()
    together: Optional[FrozenSet[str]] = None
    rests: bool = False
    in_pieces: bool = False

    @property
    def rest(self) -> float:
        """Return the longest time between two of the newest changes, in seconds."""
        return max(self.gaps, default=0.0)

    def changed(self, states: States, judged: SaveVerdict, now: float, poll_interval: float) -> ObservedSave:
        """Return the save after its files have become *states*, of which *judged* is the verdict."""
        replaced, same = _is_renewed(self.states, states), _sizes(self.states) == _sizes(states)
        another = replaced or {*_sizes(self.states)} != {*_sizes(states)}
        # A file that was whole by its checksums is not one that is still written. Of several, one may be new.
        whole = self.judged.state is SaveState.COMPLETE and self.judged.checked
        apart = another or (whole and same and len(self.states[0]) == 1)
        # Quick checks see one slow write change many times: only other files are certainly another save.
        counts = apart or now - self.counted >= poll_interval
        latest = _written(self.states, states)
        # A program that saves all the time writes as often, and not in pieces.
        soon = now - self.since < (poll_interval if self.rests else self.rest / 2)
        once_more = soon and bool(latest & self.latest) and same and not replaced
        # A file that is written once more begins the next save, if all that belong to this one are there.
        begins = self.together is not None and self.together <= self.written and bool(latest & self.together)
        return ObservedSave(
            states, judged, now, self.changes + counts,
            alike=self.alike + counts if same else 0,
            renewed=self.renewed or replaced,
            counted=now if counts else self.counted,
            # Between two saves that are far apart it says nothing of their pieces.
            gaps=(*self.gaps, now - self.since)[-GAPS:] if self.changes else self.gaps,
            other=another,
            latest=latest,
            written=latest if begins else self.written | latest,
            together=self.together,
            rests=self.rests,
            in_pieces=self.in_pieces or (once_more and self.judged.state is SaveState.COMPLETE),
        )  # fmt: skip

    def finished(
        self, now: float, poll_interval: float, *, at_rest: bool, in_order: bool
    ) -> Optional[ObservedSave]:
        """
        Return the save as observation goes on from it if it counts as finished, None if it may still be written.

        *at_rest*: the job has no process left since *now*; *in_order*: and was not killed in the middle of a save.
        """
        judged, rested = self.judged, now - self.since
        if rested >= judged.rest * poll_interval:
            return replace(self._finished(changes=0), rests=self.rests or bool(self.written))
        partly = bool(self.written and self.together and self.together - self.written)
        may_be_torn = judged.rest >= LONG or partly or (self.in_pieces and not judged.checked)
        if at_rest and (in_order or not may_be_torn):
            return self
        # Some programs save more often than we poll. A save that proves itself complete is copied all the same.
        if judged.rest == QUIET:
            single = len(self.states[0]) == 1
            proven = single and judged.checked and self.alike >= RESTLESS_FILE
            if proven or (self.changes >= NEVER_RESTS and not self.in_pieces and not at_rest):
                return self._finished(min(self.changes, RESTLESS))
            # Without checksums a file that is updated in place looks whole between two of its pieces.
            least = 0.0 if single and (judged.checked or self.other) else self.rest / 2
            settled = self.changes >= RESTLESS and rested >= least and not partly
            return self._finished(changes=RESTLESS) if settled else None
        # A save without a known format counts as whole if each one is a new file of the same size: a file
        # being written in place keeps its inode, and a new one is shorter at first.
        return (
            self._finished(self.changes)
            if judged.rest == PATIENT and self.renewed and self.alike >= RESTLESS
            else None
        )

    def _finished(self, changes: int) -> ObservedSave:
        if not self.written:
            return replace(self, changes=changes)
        together = self.written if self.together is None else self.together & self.written
        return replace(self, changes=changes, written=frozenset(), together=together)


def _is_renewed(before: States, now: States) -> bool:
    """Return whether a file was replaced by another one of the same name."""
    old = {one.name: one.inode for one in before[0]}
    return any(old.get(one.name, one.inode) != one.inode for one in now[0])


def _written(before: States, now: States) -> FrozenSet[str]:
    """Return the files with the job's state that were there before, and have changed."""
    old = {one.name: one for one in before[0]}
    # What only lies beside them, as `results.csv`, may be written at any time.
    return frozenset(
        one.name for one in now[0] if old.get(one.name, one) != one and is_save(one.name, one.size)
    )


def _sizes(states: States) -> Dict[str, int]:
    return {one.name: one.size for one in states[0]}
