"""Parse Slurm's short form of several node names: `grant-[001-003,007]`."""

from __future__ import annotations

import re
from typing import List

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def node_list(text: str) -> List[str]:
    """Return the names in order. Our names have one number, at the end; any other text is returned as one name."""
    head, bracket, inner = text.partition("[")
    if not bracket or not inner.endswith("]"):
        return [text] if text else []
    names = []
    for part in inner[:-1].split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            return [text]
        first, last = found[1], found[2] or found[1]
        names += [f"{head}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return names
