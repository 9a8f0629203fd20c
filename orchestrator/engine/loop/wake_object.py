"""Let a machine wake the loop before its next poll, by the wake object or by an overdue heartbeat."""

import threading

from orchestrator.clock import Clock
from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.object_names import HEARTBEAT, WAKE
from orchestrator.domain.ports import Store
from orchestrator.domain.spec import Spec
from orchestrator.errors import TpuctlError
from orchestrator.planning.job import SILENCE, heartbeat_interval

SHORT = 0.001
"""Pauses shorter than this, in seconds, are rounding errors of float sums."""


class WakeObject:
    """
    Wait for the next pass, and read the wake object of the incarnation every `watch.listen` seconds.

    If the poll is longer than the time after which a worker counts as silent, heartbeats are listed as well.
    """

    def __init__(self, spec: Spec, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._listen = float(spec.watch.listen)
        self._silence = SILENCE * heartbeat_interval(spec)
        self._last_call: tuple[str, int] = ("", 0)
        self._missed = ""

    def pause(self, seconds: float, wake: threading.Event, incarnation: int) -> bool:
        """
        Wait *seconds*, or until *wake* is set or a worker of *incarnation* (0: none) needs a pass.

        Return True if a worker has written the wake object or has fallen silent.
        """
        start = self._clock.monotonic()
        checks = [(self._listen, self.written), (self._silence, self._fell_silent)] if incarnation else []
        due = [every for every, _ in checks]
        waited = 0.0
        while seconds - waited > SHORT and not wake.is_set():
            # Monotonic: a jump of the wall clock must not stretch this pause.
            self._clock.wait(min([seconds, *due]) - waited, wake)
            waited = self._clock.monotonic() - start
            for number, (every, check) in enumerate(checks):
                if seconds - waited > SHORT >= due[number] - waited and not wake.is_set():
                    due[number] = waited + every
                    if check(incarnation):
                        return True
        return False

    def written(self, incarnation: int) -> bool:
        """Return whether a worker of *incarnation* has written the wake object since the last call."""
        name = f"{WAKE}{incarnation}"
        try:
            found = self._store.read(name, limit=limits.WAKE)
        except TpuctlError:
            return False
        # Compare the generation only: the content was written by a machine and is not trusted.
        call = (name, found.generation if found is not None else 0)
        is_new = found is not None and call != self._last_call
        self._last_call = call
        return is_new

    def _fell_silent(self, incarnation: int) -> bool:
        """Return whether a heartbeat is overdue; each heartbeat is reported once."""
        try:
            heartbeats = self._store.list(f"{HEARTBEAT}{incarnation}/", limits.MAX_WORKERS)
        # A missing list is no silence: Unknown is not absent.
        except TpuctlError:
            return False
        oldest = min(heartbeats, key=lambda heartbeat: heartbeat.updated, default=None)
        if oldest is None or self._clock.now() - oldest.updated <= self._silence:
            return False
        missed = f"{oldest.name}@{oldest.generation}"
        is_new = missed != self._missed
        self._missed = missed
        return is_new
