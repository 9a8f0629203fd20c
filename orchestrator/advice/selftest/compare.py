"""Compare two recordings: fields and types, answers, texts, machines, times."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.advice.selftest.recording import Recording, merge

SLOWER = 5.0
"""Ratio of two times from which on they differ, if they also differ by SECONDS."""
SECONDS = 10.0
"""Seconds by which two times must differ at least."""


class Topic(Enum):
    """What a difference is about. Different times do not make two clouds different."""

    FIELDS = "fields and types"
    STATUS = "status"
    TEXT = "error texts"
    MACHINE = "machines"
    TIME = "times"


@dataclass(frozen=True)
class Difference:
    """One difference: both sides, in the words of the recordings."""

    topic: Topic
    where: str
    recorded: str
    here: str


def differences(recorded: Recording, here: Recording) -> list[Difference]:
    """Return the differences between a recording and a replay *here*, by topic."""
    return [
        *_fields(recorded, here),
        *_statuses(recorded, here),
        *_texts(recorded, here),
        *_machines(recorded, here),
        *_times(recorded, here),
    ]


Shapes = dict[str, dict[str, set[str]]]


def _fields(recorded: Recording, here: Recording) -> Iterator[Difference]:
    """Compare the answers to calls that both recordings contain; which calls are made depends on chance."""
    theirs, ours = _answers(recorded), _answers(here)
    for call in sorted(set(theirs) & set(ours)):
        for path in sorted(set(theirs[call]) | set(ours[call])):
            one, other = theirs[call].get(path), ours[call].get(path)
            # A field on one side only, or of another type, would break a client that was tested on the other side.
            if one is None or other is None or (_types(one) != _types(other)):
                yield Difference(Topic.FIELDS, f"{call} {path}", _listed(one), _listed(other))
            elif one - other:
                # States are passed through quickly: one that only the local cloud has shown proves
                # nothing about Google.
                yield Difference(Topic.FIELDS, f"{call} {path}", _listed(one), _listed(other))


def _answers(recording: Recording) -> Shapes:
    found: Shapes = defaultdict(dict)
    for (_, call, status), entry in recording.entries.items():
        merge(found[f"{call} {status}"], entry.answered)
    return found


def _types(kinds: set[str]) -> set[str]:
    """Return the JSON types; a word of an enumeration is a string."""
    plain = {"null", "boolean", "number", "object", "empty"}
    return {kind if kind in plain else "string" for kind in kinds}


def _statuses(recorded: Recording, here: Recording) -> Iterator[Difference]:
    theirs, ours = _by_call(recorded), _by_call(here)
    for place in sorted(set(theirs) & set(ours)):
        if theirs[place] != ours[place]:
            where = " ".join(place)
            yield Difference(Topic.STATUS, where, _numbers(theirs[place]), _numbers(ours[place]))
    for stage in recorded.stages.keys() | here.stages.keys():
        one = str(recorded.stages.get(stage, {}).get("result", "not run"))
        other = str(here.stages.get(stage, {}).get("result", "not run"))
        # A skipped stage proves nothing; the stage that made it impossible reports why.
        if one != other and "skipped" not in (one, other):
            yield Difference(Topic.STATUS, f"stage {stage}", one, other)


def _by_call(recording: Recording) -> Mapping[tuple[str, str], set[int]]:
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for stage, call, status in recording.entries:
        found[stage, call].add(status)
    return found


def _texts(recorded: Recording, here: Recording) -> Iterator[Difference]:
    for key in sorted(set(recorded.entries) & set(here.entries)):
        one, other = recorded.entries[key].errors, here.entries[key].errors
        if one - other:
            stage, call, status = key
            where = f"{stage} {call} {status}"
            yield Difference(Topic.TEXT, where, _listed(one - other), _listed(other))


def _machines(recorded: Recording, here: Recording) -> Iterator[Difference]:
    for name in sorted(set(recorded.machines) & set(here.machines)):
        one, other = recorded.machines[name], here.machines[name]
        for fact in sorted(set(one) | set(other)):
            if one.get(fact) != other.get(fact):
                yield Difference(
                    Topic.MACHINE, f"{name} {fact}", one.get(fact, "not told"), other.get(fact, "not told")
                )


def _times(recorded: Recording, here: Recording) -> Iterator[Difference]:
    for stage in [name for name in recorded.stages if name in here.stages]:
        one, other = (float(side.stages[stage].get("duration_s", 0.0)) for side in (recorded, here))
        low, high = sorted((one, other))
        if high > low * SLOWER and high - low > SECONDS:
            yield Difference(Topic.TIME, f"stage {stage}", f"{one:.0f} s", f"{other:.0f} s")


def _listed(kinds: set[str] | None) -> str:
    return "; ".join(sorted(kinds)) if kinds else "absent"


def _numbers(statuses: set[int]) -> str:
    return ", ".join(str(status) for status in sorted(statuses))
