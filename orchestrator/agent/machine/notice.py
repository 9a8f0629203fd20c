"""Wait for the preemption notice."""

from __future__ import annotations

import threading
from typing import Callable

from orchestrator.agent.cloud.metadata import Metadata, MetadataValue
from orchestrator.contract.backoff import Backoff, ConsecutiveFailures
from orchestrator.contract.machine_errors import AgentError, TransientError

PATH = "instance/preempted"
HELD = 60.0
"""Seconds for which the metadata server may hold a request before it answers that nothing has changed."""
NOT_SERVED = 60.0
"""Seconds until the next try where the metadata server does not serve the key."""
WITHOUT_ETAG = 5.0
"""Seconds until the next question where the server cannot hold one."""
LAST_POLL = 1.0
"""Seconds for the question at the very end, when every second is taken from the save."""


def is_preempted(metadata: Metadata) -> bool:
    """Return whether the machine is being preempted; False without an answer within a second."""
    try:
        return _says_so(metadata.get(PATH, LAST_POLL))
    except AgentError:
        return False


PAUSES = Backoff(1.0, 10.0)
"""After a failed question: a notice lasts 30 s, so the longest pause leaves two thirds of it."""


class NoticeWatch(threading.Thread):
    """Calls *noticed* once when the metadata server announces a preemption of this machine."""

    def __init__(self, metadata: Metadata, noticed: Callable[[], None]) -> None:
        super().__init__(name="notice", daemon=True)
        self._metadata = metadata
        self._noticed = noticed
        self._ended = threading.Event()

    def run(self) -> None:
        """Long-poll until the notice; retry failures, which prove nothing about a preemption."""
        etag, failures = "", ConsecutiveFailures(PAUSES)
        while not self._ended.is_set():
            try:
                value = self._value(etag)
                etag = value.etag
                failures.reset()
                if _says_so(value):
                    self._noticed()
                    return
                if not etag:
                    self._ended.wait(WITHOUT_ETAG)
            except TransientError:
                failures.failed()
                self._ended.wait(failures.pause())
            except AgentError:
                self._ended.wait(NOT_SERVED)

    def end(self) -> None:
        """Ask the thread to end. It is a daemon, so a held request does not delay the process."""
        self._ended.set()

    def _value(self, etag: str) -> MetadataValue:
        # The server answers as soon as the value changes; polling would lose part of the 30 s of a notice.
        return self._metadata.changed(PATH, etag, HELD) if etag else self._metadata.get(PATH)


def _says_so(value: MetadataValue) -> bool:
    return value.text.strip().upper() == "TRUE"
