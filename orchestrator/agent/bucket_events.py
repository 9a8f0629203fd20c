"""Step and loss from event files that the job writes to the bucket itself (`gs://BUCKET/tensorboard`)."""

from __future__ import annotations

from functools import partial
from typing import Tuple

from orchestrator.agent.event_files import MOST_FILES, PATTERN, EventFiles
from orchestrator.agent.settings import Settings
from orchestrator.agent.storage import Bucket
from orchestrator.contract.object_names import TENSORBOARD


class BucketEvents:
    """Look below TPUCTL_TENSORBOARD_DIR and, with `dir: bucket`, below the folder of all checkpoints."""

    def __init__(self, settings: Settings, bucket: Bucket, events: EventFiles) -> None:
        self._bucket = bucket
        self._events = events
        self._prefixes = _prefixes(settings)

    def look(self) -> None:
        """Read what is new. Raises AgentError and OSError."""
        for prefix in self._prefixes:
            sizes = self._bucket.sizes(prefix)
            names = sorted((one for one in sizes if one.rpartition("/")[2].startswith(PATTERN)), key=_begun)
            for name in names[-MOST_FILES:]:
                self._events.take(name, sizes[name], partial(self._bucket.read_from, name))


def _prefixes(settings: Settings) -> Tuple[str, ...]:
    saves = settings.checkpoints
    inside = saves.folder[len("gs://") :].partition("/")[2] if saves.in_bucket else ""
    return (TENSORBOARD, *([inside.rstrip("/") + "/"] if inside else []))


def _begun(name: str) -> str:
    """Order by the time in the name, which has as many digits for the next 250 years."""
    return name.rpartition("/")[2]
