"""Agree on the saves to commit: all workers of a gang commit the same ones."""

from __future__ import annotations

import json
import math
from typing import Callable, Optional, Sequence

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.manifest import folder_name, parse_name
from orchestrator.contract.bucket.object_names import GANG
from orchestrator.contract.clock import Clock
from orchestrator.contract.json_values import json_value

WAIT_FACTOR = 3.0
"""Times that worker 0 waits for others as long as for itself: for their commits, and for their reading a name."""
READS_EACH = 4
"""Reads of the named save in the time between two saves, so that none is deleted before it is known."""
QUICKEST = 0.1
"""Least seconds between two such reads."""


class SaveAgreement:
    """
    The saves of an attempt that all workers commit: worker 0 names a step, all take their first save from there on.

    Without it, workers whose uploads last longer than the job keeps its saves would each commit other steps, and
    no checkpoint would be complete.
    """

    def __init__(self, settings: Settings, bucket: JobBucket, clock: Clock) -> None:
        self._settings = settings
        self._bucket = bucket
        self._now = clock.monotonic
        self.begin(0)

    def begin(self, attempt: int) -> None:
        """Forget what earlier attempts agreed on."""
        self._attempt = attempt
        self._named: Optional[int] = None
        self._committed: Optional[int] = None
        self._read_at = self._until = -math.inf
        self._newest: Optional[int] = None
        self._saved_at, self._interval = self._now(), math.inf
        self._rates = (0.0, 0.0)

    def committed(self, step: int, seconds: float) -> None:
        """Remember this worker's newest commit, which took *seconds*."""
        self._committed = step
        self._until = self._now() + WAIT_FACTOR * (seconds + self._settings.poll)

    def step(self, floor: int, saves: Sequence[int], fence: Callable[[], None]) -> Optional[int]:
        """
        Return the step that worker 0 has named, None if it has named none.

        *floor* is this worker's newest commit, *saves* are its complete later steps. Worker 0 calls *fence* before
        it names another step. Raise TransientError and what *fence* raises.
        """
        newest, now = max(saves, default=floor), self._now()
        if self._newest is not None and newest > self._newest:
            self._interval = max(now - self._saved_at, QUICKEST)
            self._rates = (self._rates[1], (newest - self._newest) / self._interval)
        if newest != self._newest:
            self._newest, self._saved_at = newest, now
        if self._settings.worker == 0:
            step = self._step_to_name(floor, newest)
            if step is not None:
                fence()
                self._bucket.write(self._name(), json.dumps({"from": step}).encode())
                self._named = step
        elif saves and now - self._read_at >= self._settings.poll:
            held = self._bucket.read(self._name())
            named = (json_value(held.data if held is not None else None) or {}).get("from")
            self._named, self._read_at = named if type(named) is int else None, now
        return self._named

    @property
    def pause(self) -> Optional[float]:
        """Return the seconds until the named save is read again, None if it will be there for long."""
        if self._named is None or self._newest is None or self._named <= self._newest:
            return None
        apart = max(self._interval, self._now() - self._saved_at)
        return max(QUICKEST, apart / READS_EACH) if apart / READS_EACH < self._settings.poll else None

    def _step_to_name(self, floor: int, newest: int) -> Optional[int]:
        """Return the step to name now, None if the one that is named holds."""
        # What other workers need to read a name.
        margin = WAIT_FACTOR * self._settings.poll
        stays = newest > floor and self._now() - self._saved_at >= margin
        if self._named is not None and (self._committed is None or self._committed < self._named):
            return newest if stays and newest < self._named else None
        if self._committed is not None and self._now() < self._until and not self._all_have(self._committed):
            return None
        if stays:
            return newest
        # A save that comes earlier may be deleted before all workers have read its name. The slower one of two
        # rates, because of programs that save twice in a row at times.
        return newest + 1 + math.ceil(min(self._rates) * margin)

    def _all_have(self, step: int) -> bool:
        """Return whether every worker has committed its part of a step."""
        one = self._settings
        names = self._bucket.level(folder_name(step, one.incarnation))[0]
        return sum(parse_name(name) is not None for name in names) >= one.workers

    def _name(self) -> str:
        return f"{GANG}{self._settings.incarnation}/save-{self._attempt:06d}.json"
