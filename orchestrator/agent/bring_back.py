"""What a start waits for, side by side: the checkpoint comes back while the code comes and is set up."""

from __future__ import annotations

import threading
from typing import Optional

from orchestrator.agent.bundle import fetch
from orchestrator.agent.gang import Attempt
from orchestrator.agent.orders import Interrupted
from orchestrator.agent.outcome import Outcome, Verdict
from orchestrator.agent.outputs import bring_outputs_back
from orchestrator.agent.parts import Parts
from orchestrator.agent.restore import Restored
from orchestrator.agent.venv import own_python
from orchestrator.contract.machine_errors import AgentError, SliceSizeError, TornError

TICK = 0.1


def fetch_code(parts: Parts) -> None:
    """Bring the bundle and switch to it. Raises OSError for whatever is in the way."""
    try:
        fetch(parts.settings.layout, parts.bucket, parts.settings.bundle)
    except AgentError as error:
        # A torn archive may be replaced by `up`, so it is waited out like an absent one.
        raise OSError(str(error)) from error
    parts.status.time("fetched", again=False)


def bring_python(parts: Parts) -> Optional[Outcome]:
    """Install the Python that `job.python` asks for; return how the attempt ends if that cannot be done."""
    try:
        own_python(parts.environ, parts.settings.layout, lambda: parts.bucket)
    except (AgentError, OSError) as error:
        return Outcome(Verdict.FAILED, str(error))
    return None


class BringBack(threading.Thread):
    """
    Restore the checkpoint of one attempt in a thread of its own.

    Nobody else may touch the job's checkpoints meanwhile: the job has not been started, nothing is committed.
    """

    def __init__(self, parts: Parts, attempt: Attempt) -> None:
        super().__init__(name="restore", daemon=True)
        self._parts = parts
        self._attempt = attempt
        self._failed: Optional[BaseException] = None
        self.restored = Restored("", ())
        self.outcome: Optional[Outcome] = None

    def run(self) -> None:
        """Restore, and keep whatever came of it for `wait`."""
        self._parts.status.time("restore_began")
        try:
            self.outcome = self.restore()
        except BaseException as error:
            self._failed = error

    def wait(self) -> None:
        """Return when it is over. Raises what ended it, and Interrupted at once when the agent is to end."""
        while self.is_alive():
            self._parts.orders.wait(TICK)
        if self._failed is not None:
            raise self._failed

    def rest(self) -> None:
        """Return when it is over, whatever came of it, so that the next attempt may restore. Raises Interrupted."""
        try:
            self.wait()
        except Interrupted:
            raise
        except Exception as error:  # The attempt has failed already, for another reason.
            self._parts.status.trouble("restore", repr(error))

    def restore(self) -> Optional[Outcome]:
        """Restore now, in the caller's thread; return how the attempt ends if that cannot be done."""
        parts, attempt = self._parts, self._attempt
        try:
            self.restored = self._twice()
        except TornError as error:
            parts.patiently("put the torn checkpoint aside", lambda: parts.restorer.discard(attempt))
            return Outcome(Verdict.FAILED, f"restore: {error}")
        except SliceSizeError as error:
            return Outcome(Verdict.FAILED, f"restore: {error}")
        if parts.format.at_end and not parts.settings.checkpoints.in_bucket:
            parts.patiently("bring outputs back", lambda: bring_outputs_back(parts))
        parts.status.time("restored")
        return None

    def _twice(self) -> Restored:
        """Restore; a torn download is tried once more before the checkpoint itself counts as torn."""
        parts, attempt = self._parts, self._attempt
        try:
            return parts.patiently("restore", lambda: parts.restorer.restore(attempt))
        except TornError:
            return parts.patiently("restore", lambda: parts.restorer.restore(attempt))
