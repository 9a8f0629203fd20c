"""Find the step in a file name, and which files are later saves of the same series."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Optional

_ENDING = re.compile(r"(?:\.weights)?\.[a-z][a-z0-9]*(?:\.tar|\.gz|\.zip)?$")
_NOISE = re.compile(
    r"(?:[a-z]p_)?(?:rank|worker|shard|process|part|gpu|host)[-_]?\d+"  # rank that wrote the part
    r"|\d+[-_]of[-_]\d+"  # number of the part
    r"|\d+\.\d+(?:e[-+]?\d+)?"  # a metric
    r"|(?<![a-z0-9])v\d+(?![a-z0-9])"  # a version: last-v1.ckpt
)
TIME = re.compile(
    r"(?<!\d)(?:20\d{6}|20\d\d[-_.]\d\d[-_.]\d\d|\d{10,})(?:[-_t.]?\d\d[-:._]?\d\d[-:._]?\d\d)?"
)
VERSION = re.compile(r"[-_.]v\d+(?=\.)", re.IGNORECASE)
_WORD = r"(?:global_?steps?|steps?|iter(?:ation)?s?|updates?|batch(?:es)?|kimg|tokens?|samples?)"
_STEP = re.compile(rf"{_WORD}[-_=: .]?(\d+)|(?<![a-z0-9])(\d+)[-_]?{_WORD}(?![a-z]|[-_=: .]?\d)")
_EPOCH = re.compile(r"(?<![a-z])(?:epochs?|ep|e)[-_=: .]?(\d+)")
_PLAIN = re.compile(
    r"(?<![a-z])(?:model|ckpt|checkpoint|chkpt|snapshot|weights|params|state|save|net|optim(?:izer)?|opt|gen)(\d+)"
    r"|(?:^|[-_=: .])(\d+)(?=[-_=: .]*$|[-_=: .])"
)


class NameKind(enum.IntEnum):
    """Say what a number in a name counts. A time gives the order of saves, but no step."""

    TIME = 0
    PLAIN = 1
    EPOCH = 2
    STEP = 3


@dataclass(frozen=True)
class Numbered:
    """
    The number in a name, what it counts, and the name with `#` in its place.

    *epoch* is set for a name that also has a step.
    """

    number: int
    kind: NameKind
    series: str
    epoch: Optional[int] = None


def numbered(name: str) -> Optional[Numbered]:
    """Return the number in a file's base name; None for a file that is replaced in place."""
    lower = name.lower()
    ending = _ENDING.search(lower)
    stem = lower[: ending.start()] if ending else lower
    time = TIME.search(stem)
    if time:
        digits = int(re.sub(r"\D", "", time[0]))
        return Numbered(digits, NameKind.TIME, _series(name, time.start(), time.end()))
    # Blanked in place, so that positions still fit the name.
    quiet = _NOISE.sub(lambda match: "x" * len(match[0]), stem)
    for kind, pattern in ((NameKind.STEP, _STEP), (NameKind.EPOCH, _EPOCH), (NameKind.PLAIN, _PLAIN)):
        found = list(pattern.finditer(quiet))
        if found:
            # The last match: `step` may also be part of the experiment's name.
            match = found[-1]
            group = 1 if match[1] is not None else 2
            series = _series(name, match.start(group), match.end(group))
            epoch = _EPOCH.search(quiet) if kind is NameKind.STEP else None
            return Numbered(int(match[group]), kind, series, int(epoch[1]) if epoch else None)
    return None


def _series(name: str, start: int, end: int) -> str:
    """
    Return the name with all other numbers blanked, because a metric differs from save to save.

    A version is removed: Lightning saves `step=40-v1.ckpt` beside the `step=40.ckpt` that it resumed from.
    """
    after = VERSION.sub("", name[end:])
    return re.sub(r"\d+(?:\.\d+)?", "#", name[:start]) + "#" + re.sub(r"\d+\.\d+|\d+", _blanked, after)


def _blanked(match: "re.Match[str]") -> str:
    """Blank a metric; keep integers after the step, which are a rank or a part."""
    return "#" if "." in match[0] else match[0]
