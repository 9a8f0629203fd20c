"""Compare two checkpoints of one step by their bytes, to find out whether two runs have made the same model."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

NOTES = re.compile(
    r"(\.(json|txt|log|ya?ml|md|ini)|(^|/)(COMPLETE|_METADATA|_CHECKPOINT_METADATA|training_args\.bin"
    r"|[^/]*\.ocdbt|events\.out\.tfevents[^/]*))$"
)
"""Names of files that may contain times, paths and host names beside learnt numbers."""
SHARDED = re.compile(r"(^|/)(manifest\.ocdbt|ocdbt\.process_\d+/.*)$")
"""Files of TensorStore's OCDBT, whose data files have random names and contain times."""
STAMPED = frozenset({"metadata.json"})
"""Members of an archive that contain the time of the save (Keras)."""


@dataclass(frozen=True)
class FileDigest:
    """The digest of one file: its sha256, and for a zip archive (npz, pt, keras) each member's CRC-32."""

    sha256: str
    members: Mapping[str, int] | None = None


Digests = Mapping[str, FileDigest]


class Likeness(Enum):
    """The result of comparing two checkpoints."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Comparison:
    """The result: the number of *files* of *step*, and those that *differ*."""

    likeness: Likeness
    step: int
    files: int
    differ: tuple[str, ...] = ()


def compare(ours: Mapping[int, Digests], theirs: Mapping[int, Digests]) -> Comparison | None:
    """Compare the newest step that both have; return None if there is none."""
    common = set(ours) & set(theirs)
    if not common:
        return None
    step = max(common)
    mine, other = _learnt(ours[step]), _learnt(theirs[step])
    differ = tuple(sorted(n for n in set(mine) & set(other) if not _alike(mine[n], other[n])))
    strange = sorted(set(mine) ^ set(other))
    # By content, whatever the names: some formats number their files at random.
    moved = Counter(mine[n].sha256 for n in strange if n in mine) != Counter(
        other[n].sha256 for n in strange if n in other
    )
    files = len(mine)
    if not differ and not moved:
        return Comparison(Likeness.SAME, step, files)
    # Second, because different bytes prove nothing here, while equal ones do.
    if any(SHARDED.search(name) for name in (*ours[step], *theirs[step])):
        return Comparison(Likeness.UNKNOWN, step, files)
    named = tuple(sorted({*differ, *(strange if moved else ())}))
    return Comparison(Likeness.DIFFERENT, step, len({*mine, *other}), named)


def _learnt(digests: Digests) -> Digests:
    """Return the files with learnt numbers; all files if none looks like one."""
    # If only side files are left, compare them: comparing nothing would look like equality.
    return {name: one for name, one in digests.items() if not NOTES.search(name)} or digests


def _alike(one: FileDigest, other: FileDigest) -> bool:
    if one.sha256 == other.sha256:
        return True
    if one.members is None or other.members is None:
        return False
    return _numbers(one.members) == _numbers(other.members)


def _numbers(members: Mapping[str, int]) -> dict[str, int]:
    return {name: crc for name, crc in members.items() if name not in STAMPED}
