"""Record the shapes of the requests and answers of all clients in this process."""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from orchestrator.advice.selftest.recording import ENUMS, RecordedCall, Recording, RecordingRedactor, merge


class Recorder:
    """
    Collect shapes into a recording; safe for use from any thread. *now* is a clock in seconds.

    The content of objects in buckets is not examined.
    """

    def __init__(self, recording: Recording, redactor: RecordingRedactor, now: Callable[[], float]) -> None:
        self.recording, self.redactor, self._now = recording, redactor, now
        self._lock = threading.Lock()
        self._stage, self._began = "", now()

    def begin(self, stage: str) -> None:
        """Name the stage to which the following exchanges belong."""
        self._stage, self._began = stage, self._now()

    def __call__(self, response: Any) -> None:
        """Record the shape of one exchange."""
        request = response.request
        url = urlsplit(request.url)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        private = "/upload/" in url.path or query.get("alt") == "media" or url.path.startswith("/batch")
        call = f"{request.method} {self.redactor.path(url.path)}"
        asked = None if private else _json(request.body)
        body = None if private else _json(response.content)
        answered = self.redactor.shape(body) if body is not None else {}
        with self._lock:
            key = (self._stage, call, int(response.status_code))
            entry = self.recording.entries.setdefault(key, RecordedCall())
            entry.count += 1
            entry.query |= {name for name in query if name.isalpha()}
            entry.longest_ms = max(entry.longest_ms, round(response.elapsed.total_seconds() * 1000))
            merge(entry.asked, self.redactor.shape(asked) if asked is not None else {})
            merge(entry.answered, answered)
            entry.errors.update(
                [" | ".join(self.redactor.errors(body))] if self.redactor.errors(body) else []
            )
            for path, kinds in answered.items():
                if path.rpartition(".")[2] in ENUMS:
                    for kind in kinds:
                        entry.first.setdefault(f"{path}={kind}", round(self._now() - self._began, 1))


def _json(body: Any) -> Any:
    if not isinstance(body, bytes | str) or not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None
