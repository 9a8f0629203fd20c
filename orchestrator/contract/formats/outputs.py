"""Outputs of a job without steps (evaluation, preprocessing): complete when the job ends with status 0."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Iterator, List, Tuple

from orchestrator.contract.formats.base import BucketSave, Format, Listing, LocalSave


class Outputs(Format):
    """Treat all files as one save without a step, committed at the end; after a preemption the job starts again."""

    name = "outputs"
    wants = "status 0, and at least one file in $TPUCTL_CHECKPOINT_DIR"
    at_end = True

    def find(self, root: Path) -> List[LocalSave]:
        """Return nothing: while the job runs, no file is known to be whole."""
        return []

    def resume(self, root: str, save: LocalSave) -> str:
        return root.rstrip("/")

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """Yield one save of all objects; its name is empty, because it has no folder of its own."""
        count = len(listing.names) + len(listing.folders)
        if count:
            yield BucketSave(1, "", complete=True, message=f"{count} objects or folders")


def outputs_in(root: Path) -> Tuple[str, ...]:
    """Return the regular files below *root*, sorted, without links, sockets and the agent's own folders."""
    found = []
    for base, folders, names in os.walk(str(root)):
        # In place: os.walk continues with what this list holds.
        folders[:] = [one for one in folders if not one.startswith((".restore-", ".quarantine-"))]
        for name in names:
            path = Path(base) / name
            if stat.S_ISREG(path.lstat().st_mode):
                found.append(path.relative_to(root).as_posix())
    return tuple(sorted(found))
