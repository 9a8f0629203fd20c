"""Saves that the job writes to its bucket itself, where nobody looks for them."""

from __future__ import annotations

from typing import List, Tuple

from orchestrator.agent.storage import Bucket, seconds_of
from orchestrator.contract.formats.save_like import save_folder_like, save_like
from orchestrator.contract.object_names import OURS

BUCKET = "bucket"
MOST_FOLDERS = 10


def stray_in(bucket: Bucket, since: float) -> str:
    """
    Return the newest object of the bucket that looks like a save of this job, where nobody looks for one.

    It is written after *since*, and in the first page of its folder.
    """
    found: List[Tuple[str, str]] = []
    _items, folders = bucket.glance("", deep=False)
    for folder in [one for one in folders if one not in OURS][:MOST_FOLDERS]:
        for item in bucket.glance(folder, deep=True)[0]:
            name = str(item["name"])
            if since and seconds_of(str(item["updated"])) >= since - 1 and _is_save(name):
                found.append((str(item["updated"]), name))
    return max(found, default=("", ""))[1]


def _is_save(name: str) -> bool:
    *folders, last = name.split("/")
    return save_like(last) or any(map(save_folder_like, folders))
