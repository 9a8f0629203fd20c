"""What the agent remembers on disk about the last start of the job (state/job.json)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional

from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine.processes import boot_id, start_time
from orchestrator.contract.replacing import write_atomically


@dataclass(frozen=True)
class StartRecord:
    """
    Hold the last start. *ended* is empty while the job runs, and stays empty when the agent was killed.

    *finished* says why the job counts as finished, before its saves are made sure of, and *reached* which
    step it had reported by then. *trains_since* is the time of the first start of the command on this machine,
    in seconds since the epoch.
    """

    incarnation: int = 0
    attempt: int = 0
    starts: int = 0
    bundle: str = ""
    boot: str = ""
    session: Optional[int] = None
    leader_started: str = ""
    ended: str = ""
    finished: str = ""
    reached: Optional[int] = None
    trains_since: float = 0.0

    def with_session(self, session: int) -> StartRecord:
        """Return the record with the job's session."""
        return replace(self, session=session, leader_started=start_time(session))

    def living_session(self) -> Optional[int]:
        """Return the session if its number can still mean the job's: same boot, and no stranger leads it."""
        if self.session is None or self.boot != boot_id():
            return None
        now = start_time(self.session)
        return self.session if now in ("", self.leader_started) else None

    def over(self, attempt: int, bundle: str) -> bool:
        """Say whether the job of this attempt has exited with status 0, and needs no start."""
        return bool(self.finished) and (self.attempt, self.bundle) == (attempt, bundle)

    def killed_on_this_boot(self) -> bool:
        """Say whether an agent died here while its job ran, with no reboot since."""
        return self.attempt > 0 and not self.ended and self.boot == boot_id()


def load(layout: Layout) -> StartRecord:
    """Return what was recorded, an empty record when there is none."""
    value = read_json(layout.job)
    known = {key: value[key] for key in StartRecord.__dataclass_fields__ if key in value}
    try:
        return StartRecord(**known)
    except TypeError:
        return StartRecord()


def save(layout: Layout, record: StartRecord, **changes: Any) -> StartRecord:
    """Record durably and return the record with *changes*. Raises OSError."""
    changed = replace(record, **changes)
    write_atomically(layout.job, json.dumps(asdict(changed)))
    return changed
