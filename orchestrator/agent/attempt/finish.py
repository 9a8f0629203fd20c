"""From the job's end to the agent's: nothing that was trained stays behind on a machine that goes."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Optional

from orchestrator.agent.attempt.play import Player
from orchestrator.agent.attempt.rescue import Rescue
from orchestrator.agent.checkpoints.leftovers import BUCKET, stray_in
from orchestrator.agent.cloud.storage import SECONDS
from orchestrator.agent.gang import Attempt
from orchestrator.agent.orders import Ending, EndingKind, JobInterrupted
from orchestrator.agent.outcome import JobOutcome
from orchestrator.agent.parts import Parts
from orchestrator.agent.peers import all_ended, first_ended
from orchestrator.contract.completeness import Checkpoint
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.preemption_notice import RESCUE
from orchestrator.contract.unclaimed_manifest import Unclaimed, Why

LEAST = 2.0
LONGEST = 3600.0
"""Seconds at most for the files of a job that was given up: its machine costs money, its files may be all."""
TICK = 0.2


class Finish:
    """Say how a finished job ends, once every worker's has ended and what no commit contains is in the bucket."""

    def __init__(self, parts: Parts, player: Player) -> None:
        self._parts = parts
        self._player = player
        self.rescue = Rescue(parts)

    def ending(self, attempt: Attempt, outcome: JobOutcome) -> Optional[Ending]:
        """
        Return the ending, None when the gang goes on instead. Raises JobInterrupted.

        Without a checkpoint that every worker has a part of, the job is not done, whatever its exit status.
        """
        parts, since = self._parts, self._player.record.trains_since
        if parts.settings.worker and parts.committer.saved_nothing():
            # Worker 0 looks for a whole checkpoint when it has heard of our end, so our part comes before it.
            if not first_ended(parts, attempt):
                return None
            parts.patiently("commit an empty part", parts.committer.follow_first)
        # Every worker's part must be committed first: only then a list of the bucket tells whether it is
        # whole.
        if not all_ended(parts, attempt, outcome.reason):
            return None
        newest = parts.patiently("look for checkpoints", self._committed)
        committed = newest.step if newest is not None else None
        if newest is not None and parts.status.get("committed_step") is None:
            # Of a bucket that the job writes to itself, the last commit may be another worker's.
            parts.status.set(committed_step=newest.step)
        found = parts.patiently("look for files", lambda: self.rescue.found(committed, since))
        if newest is not None and not found[0]:
            return Ending(EndingKind.DONE, outcome.reason)
        parts.status.set(phase="ended", message=f"{outcome.reason}; its files are brought to the bucket")
        if newest is None and not found[0] and not parts.settings.worker:
            name = parts.patiently("look into the bucket", lambda: stray_in(parts.bucket, since))
            parts.status.set(uncommitted=name, uncommitted_place=BUCKET if name else "")
        brought = self.rescue.after_the_end(attempt, committed, found)
        if newest is not None:
            return Ending(EndingKind.DONE, f"{outcome.reason}; {in_words(brought)} beside its checkpoints")
        return Ending(EndingKind.UNCLAIMED, f"{outcome.reason}; nothing was committed, {in_words(brought)}")

    def ended_earlier(self) -> None:
        """Raise JobInterrupted when an earlier machine has kept what this very job had trained to its end."""
        earlier = self._parts.patiently("look for unclaimed files", self.rescue.earlier)
        mine = next((one for one in earlier if one.worker == self._parts.settings.worker), None)
        if mine is not None:
            self.rescue.report(mine)
            why = f"the job had ended on incarnation {mine.incarnation}; nothing was committed, {in_words(mine)}"
            raise JobInterrupted(Ending(EndingKind.UNCLAIMED, why))

    def before(self, ending: Ending) -> None:
        """Bring what no commit contains before the last word, for as long as the machine has."""
        record, orders = self._player.record, self._parts.orders
        if ending.kind not in (EndingKind.NOTICE, EndingKind.GAVE_UP) or not record.trains_since:
            return
        notice = ending.kind is EndingKind.NOTICE
        committed = self._parts.status.get("committed_step")
        if not notice:
            # What the report says may be another worker's news by now; ten seconds are worth a better answer.
            with contextlib.suppress(AgentError, OSError):
                newest = self._parts.catalogue.newest(10.0)
                committed = newest.step if newest is not None else None
        gone_by = (orders.ended_at or time.monotonic()) + RESCUE
        seconds = max(LEAST, gone_by - time.monotonic()) if notice else LONGEST
        why = Why.NOTICE if notice else Why.FAILED
        # A thread of its own, because no call to the bucket can be interrupted and the machine may go at any
        # time.
        work = threading.Thread(
            target=self.rescue.in_time, name="rescue", daemon=True,
            args=(why, record.attempt, committed, record.trains_since, seconds),
        )  # fmt: skip
        work.start()
        end = time.monotonic() + seconds
        noticed_at: Optional[float] = None
        while work.is_alive() and time.monotonic() < end:
            work.join(TICK)
            if not notice and noticed_at is None and self._parts.status.get("notice"):
                # Given up, and taken away meanwhile: what is not there in time will not be.
                noticed_at = time.monotonic()
                end = min(end, noticed_at + RESCUE)

    def _committed(self) -> Optional[Checkpoint]:
        """Return the checkpoint that holds what was trained; of outputs only those of this run count."""
        parts, number = self._parts, self._parts.settings.incarnation
        if not parts.format.at_end or parts.settings.checkpoints.in_bucket:
            return parts.catalogue.newest(SECONDS)
        return parts.catalogue.completed(number, number)


def in_words(brought: Unclaimed) -> str:
    """Return in words what one worker has brought."""
    if not brought.files:
        return "no file was found"
    count = len(brought.files)
    return f"{count} file{'' if count == 1 else 's'} of it {'is' if count == 1 else 'are'} in unclaimed/"
