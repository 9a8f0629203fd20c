"""Notice, while the job runs, that it saves files which no commit will contain."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Set, Tuple

from orchestrator.agent.leftovers import BUCKET, stray_in
from orchestrator.agent.parts import Parts
from orchestrator.agent.rescue import Rescue
from orchestrator.contract.formats.save_like import checkpoint_like, save_folder_like
from orchestrator.contract.unclaimed_manifest import Place

QUIET = 4
"""Heartbeats for which a save may lie there without any commit."""
_Named = Tuple[Place, str]


class Uncommitted:
    """Name in the heartbeat a file that looks like a save, as long as nothing at all is committed."""

    def __init__(self, parts: Parts, rescue: Rescue, since: Callable[[], float]) -> None:
        self._parts = parts
        self._rescue = rescue
        self._since = since
        self._found_at: Dict[_Named, float] = {}

    def look(self) -> None:
        """Look once. Raises OSError or AgentError."""
        status = self._parts.status
        if status.get("phase") != "run" or self._parts.format.at_end:
            return
        if status.get("committed_step") is not None:
            status.set(uncommitted="", uncommitted_place="", uncommitted_state="")
            return
        now, named = time.monotonic(), self._names()
        self._found_at = {one: self._found_at.get(one, now) for one in named}
        quiet = QUIET * self._parts.settings.heartbeat
        # The newest comes first: it is what people have to look at.
        lying = [one for one in named if now - self._found_at[one] >= quiet]
        place, name = (lying[0][0].value, lying[0][1]) if lying else ("", "")
        state = self._rescue.state_of(place, name)
        if not name and not self._parts.settings.worker:
            name = stray_in(self._parts.bucket, self._since())
            place = BUCKET if name else ""
        status.set(uncommitted=name, uncommitted_place=place, uncommitted_state=state)

    def _names(self) -> List[_Named]:
        """Return what looks like a save and waits for no commit, newest first."""
        if self._parts.settings.checkpoints.in_bucket:
            prefix = self._parts.catalogue.prefix()
            names, folders = self._parts.bucket.level(prefix)
            saves = [one[len(prefix) :] for one in names if checkpoint_like(one.rpartition("/")[2])]
            inner = [one[len(prefix) :].rstrip("/") for one in folders]
            return [(Place.CHECKPOINTS, one) for one in (*saves, *filter(save_folder_like, inner))]
        found, _ = self._rescue.found(None, self._since())
        whole = self._whole()
        return [
            (one.place, one.relative) for one in found
            if one.save_like and one.place is not Place.QUARANTINE
            and not (one.place is Place.CHECKPOINTS and any(_within(one.relative, name) for name in whole))
        ]  # fmt: skip

    def _whole(self) -> Set[str]:
        """Return the names of whole saves: they are about to be committed."""
        found: Set[str] = set()
        for step in self._parts.local.steps():
            if step.complete and step.unit.files is None:
                found.add(step.unit.folder)
            elif step.complete:
                start = "" if step.unit.folder == "." else f"{step.unit.folder}/"
                found |= {start + name for name in step.unit.files or ()}
        return found


def _within(name: str, whole: str) -> bool:
    return name == whole or name.startswith(f"{whole}/")
