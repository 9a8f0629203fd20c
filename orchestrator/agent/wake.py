"""Ring for the controller: one small object tells it to look now, not at its next poll."""

from __future__ import annotations

import json
import time
from typing import Any, Mapping, Tuple

from orchestrator.agent.storage import Bucket
from orchestrator.agent.threads import say
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.object_names import WAKE

LONGEST = 5.0
_ENDS = ("done", "unclaimed", "failed")


class Bell:
    """
    Write the wake object of this incarnation whenever a report holds something that cannot wait.

    All workers share one object, so that the controller reads one and not as many as there are machines.
    """

    def __init__(self, incarnation: int, worker: int, bucket: Bucket) -> None:
        self._name = f"{WAKE}{incarnation}"
        self._worker = worker
        self._bucket = bucket
        self._told: Tuple[Any, ...] = ()

    def ring(self, report: Mapping[str, Any], seconds: float) -> None:
        """
        Ring if *report*, which the bucket has just taken, is news of a notice or of the job's end.

        A ring that fails costs no more than the time to the next poll, so it is not tried again.
        """
        news = (report["attempt"], report["phase"], report["notice"])
        if news == self._told or not (report["notice"] or report["phase"] in _ENDS):
            return
        self._told = news
        _attempt, phase, notice = news
        text = {"worker": self._worker, "phase": phase, "notice": notice, "at": time.time()}
        try:
            self._bucket.write(self._name, json.dumps(text).encode(), seconds=min(LONGEST, seconds))
        except (AgentError, OSError) as error:
            say(f"wake: {error}")
