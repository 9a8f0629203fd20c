"""Decide when a save that is still being observed counts as finished. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Optional, Tuple

from orchestrator.contract.formats.base import LONG, PATIENT, QUIET, SaveState, SaveVerdict

RESTLESS = 4
"""Consecutive changes after which a save that never settles is copied, between two of them."""
NEVER_RESTS = 16
"""The same for a save that never does: each look finds it changed."""
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
    replaced by another one. *counted* is when a change was counted last, *rest* the longest time between two,
    and *other* says that the last one brought another file.
    """

    states: States
    judged: SaveVerdict
    since: float
    changes: int
    alike: int = 0
    renewed: bool = False
    counted: float = 0.0
    rest: float = 0.0
    other: bool = False

    def changed(self, states: States, judged: SaveVerdict, now: float, poll_interval: float) -> ObservedSave:
        """Return the save after its files have become *states*, of which *judged* is the verdict."""
        replaced, same = _is_renewed(self.states, states), _sizes(self.states) == _sizes(states)
        another = replaced or {*_sizes(self.states)} != {*_sizes(states)}
        # A file that was whole by its checksums is not one that is still written. Of several, one may be new.
        whole = self.judged.state is SaveState.COMPLETE and self.judged.checked
        apart = another or (whole and same and len(self.states[0]) == 1)
        # Quick checks see one slow write change many times: only other files are certainly another save.
        counts = apart or now - self.counted >= poll_interval
        return ObservedSave(
            states, judged, now, self.changes + counts,
            alike=self.alike + counts if same else 0,
            renewed=self.renewed or replaced,
            counted=now if counts else self.counted,
            rest=max(self.rest, now - self.since),
            other=another,
        )  # fmt: skip

    def finished(
        self, now: float, poll_interval: float, *, at_rest: bool, in_order: bool
    ) -> Optional[ObservedSave]:
        """
        Return the save as observation goes on from it if it counts as finished, None if it may still be written.

        *at_rest*: the job has no process left; *in_order*: and has exited with status 0.
        """
        judged, for_long = self.judged, now - self.since
        if for_long >= judged.rest * poll_interval and not at_rest:
            return replace(self, changes=0)
        if at_rest and (judged.rest < LONG or in_order):
            return self
        # Some programs save more often than we poll. A save that proves itself complete is copied all the same.
        if judged.rest == QUIET:
            single = len(self.states[0]) == 1
            if self.changes >= NEVER_RESTS or (single and judged.checked and self.alike >= RESTLESS_FILE):
                return self
            # Without checksums a file that is updated in place looks whole between two of its pieces.
            least = 0.0 if single and (judged.checked or self.other) else self.rest / 2
            return replace(self, changes=RESTLESS) if self.changes >= RESTLESS and for_long >= least else None
        # A save without a known format counts as whole if each one is a new file of the same size: a file
        # being written in place keeps its inode, and a new one is shorter at first.
        return self if judged.rest == PATIENT and self.renewed and self.alike >= RESTLESS else None


def _is_renewed(before: States, now: States) -> bool:
    """Return whether a file was replaced by another one of the same name."""
    old = {one.name: one.inode for one in before[0]}
    return any(old.get(one.name, one.inode) != one.inode for one in now[0])


def _sizes(states: States) -> Dict[str, int]:
    return {one.name: one.size for one in states[0]}
