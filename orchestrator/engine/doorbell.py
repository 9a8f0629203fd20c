"""How a machine makes the loop look before its poll: it writes an object, or stops writing another one."""

import threading

from orchestrator.clock import Clock
from orchestrator.contract import limits
from orchestrator.contract.object_names import HEARTBEAT, WAKE
from orchestrator.domain.ports import Store
from orchestrator.domain.spec import Spec
from orchestrator.errors import TpuctlError
from orchestrator.planning.job import SILENCE, heartbeat_interval

SHORT = 0.001
"""Seconds too short to wait for: sums of floats miss each other by less."""


class Doorbell:
    """
    Wait, looking every `watch.listen` at the one object that all workers of an incarnation ring with.

    When the poll is longer than a machine's silence may be, the heartbeats are listed as often as that.
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
        Wait for *seconds*, for *wake*, or until a worker of *incarnation* calls; 0 when none could.

        Say whether one has called, or has fallen silent.
        """
        start = self._clock.monotonic()
        looks = [(self._listen, self.rung), (self._silence, self._fell_silent)] if incarnation else []
        due = [every for every, _ in looks]
        waited = 0.0
        while seconds - waited > SHORT and not wake.is_set():
            # By the monotonic clock: a step of the wall clock must not make this pause an hour long.
            self._clock.wait(min([seconds, *due]) - waited, wake)
            waited = self._clock.monotonic() - start
            for number, (every, look) in enumerate(looks):
                if seconds - waited > SHORT >= due[number] - waited and not wake.is_set():
                    due[number] = waited + every
                    if look(incarnation):
                        return True
        return False

    def rung(self, incarnation: int) -> bool:
        """Say whether a worker of *incarnation* has called since the last look."""
        name = f"{WAKE}{incarnation}"
        try:
            found = self._store.read(name, limit=limits.WAKE)
        except TpuctlError:
            return False
        # By the generation: what the object says is a machine's, and is not believed.
        call = (name, found.generation if found is not None else 0)
        news = found is not None and call != self._last_call
        self._last_call = call
        return news

    def _fell_silent(self, incarnation: int) -> bool:
        """Say whether a report is overdue, once for each report."""
        try:
            beats = self._store.list(f"{HEARTBEAT}{incarnation}/", limits.MOST_WORKERS)
        except TpuctlError:
            return False
        oldest = min(beats, key=lambda beat: beat.updated, default=None)
        if oldest is None or self._clock.now() - oldest.updated <= self._silence:
            return False
        missed = f"{oldest.name}@{oldest.generation}"
        news = missed != self._missed
        self._missed = missed
        return news
