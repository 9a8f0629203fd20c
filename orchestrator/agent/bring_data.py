"""Wait for the job's data and say how far it is."""

from __future__ import annotations

import threading
import time
from typing import Optional

from orchestrator.agent.data import Data
from orchestrator.agent.orders import Interrupted
from orchestrator.agent.outcome import Outcome, Verdict
from orchestrator.agent.parts import Parts
from orchestrator.contract.machine_errors import FinalError

TICK = 0.1
TELL = 2.0


def bring_data(parts: Parts) -> Optional[Outcome]:
    """
    Return None when the data that the code asks for is here, else how the attempt ends.

    Raises Interrupted at once when the agent is to end; what has come by then is kept.
    """
    data = Data(parts.settings.layout, parts.bucket)
    if not data.wants():
        return None
    parts.status.time("data_began")
    task = _Task(parts, data)
    task.start()
    told = 0.0
    try:
        while task.is_alive():
            parts.orders.wait(TICK)
            if time.monotonic() - told >= max(TELL, parts.settings.heartbeat):
                told = time.monotonic()
                parts.status.set(
                    message=f"data: {data.done / 1e9:.2f} of {data.wanted / 1e9:.2f} GB are here"
                )
    except Interrupted:
        data.stop.set()
        raise
    parts.status.set(message="")
    if isinstance(task.failed, FinalError):
        return Outcome(Verdict.FAILED, f"data: {task.failed}")
    if task.failed is not None:
        raise task.failed
    parts.status.time("data_done")
    return None


class _Task(threading.Thread):
    """Bring the data, trying until it succeeds or cannot."""

    def __init__(self, parts: Parts, data: Data) -> None:
        super().__init__(name="data", daemon=True)
        self._parts = parts
        self._data = data
        self.failed: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._parts.patiently("bring the data", self._data.bring)
        except BaseException as error:
            self.failed = error
