"""Keep the agent's record of the job's last attempt on disk (state/job.json)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional

from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine.processes import boot_id, start_time
from orchestrator.contract.replacing import write_atomically

_KEYS = {"attempts": "starts"}
"""Fields that have another key on disk: an agent of before may start after one of today."""


@dataclass(frozen=True)
class AttemptRecord:
    """
    The last attempt of the job; *attempts* counts them on this machine.

    *ended* is "" while the job runs, and stays "" if the agent was killed. *finished* is the reason why the
    job counts as finished, set before its last commit, and *reached* its last reported step. *trains_since*
    is the time of the first one on this machine, in seconds since the epoch.
    """

    incarnation: int = 0
    attempt: int = 0
    attempts: int = 0
    bundle: str = ""
    boot: str = ""
    session: Optional[int] = None
    leader_started: str = ""
    ended: str = ""
    finished: str = ""
    reached: Optional[int] = None
    trains_since: float = 0.0

    def with_session(self, session: int) -> AttemptRecord:
        """Return a copy with the job's session."""
        return replace(self, session=session, leader_started=start_time(session))

    def living_session(self) -> Optional[int]:
        """Return the session if its id is still the job's: same boot, and its leader is not another process."""
        if self.session is None or self.boot != boot_id():
            return None
        now = start_time(self.session)
        return self.session if now in ("", self.leader_started) else None

    def over(self, attempt: int, bundle: str) -> bool:
        """Return whether the job of this attempt has exited with status 0 and must not be started again."""
        return bool(self.finished) and (self.attempt, self.bundle) == (attempt, bundle)

    def killed_on_this_boot(self) -> bool:
        """Return whether an agent was killed during this boot while its job ran."""
        return self.attempt > 0 and not self.ended and self.boot == boot_id()


def load(layout: Layout) -> AttemptRecord:
    """Return the stored record, an empty one if there is none."""
    value = read_json(layout.job)
    stored = {name: _KEYS.get(name, name) for name in AttemptRecord.__dataclass_fields__}
    known = {name: value[key] for name, key in stored.items() if key in value}
    try:
        return AttemptRecord(**known)
    except TypeError:
        return AttemptRecord()


def save(layout: Layout, record: AttemptRecord, **changes: Any) -> AttemptRecord:
    """Store the record with *changes* durably, and return it. Raise OSError."""
    changed = replace(record, **changes)
    write_atomically(
        layout.job, json.dumps({_KEYS.get(name, name): one for name, one in asdict(changed).items()})
    )
    return changed
