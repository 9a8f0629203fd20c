"""A recording of a self-test: what was called in which step, with which shapes, and how long it took."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass
class Entry:
    """
    Gather all exchanges of one step with one call and one status.

    *first* says after how many seconds of the step a value of an enumeration was first answered.
    """

    count: int = 0
    query: set[str] = field(default_factory=set)
    asked: dict[str, set[str]] = field(default_factory=dict)
    answered: dict[str, set[str]] = field(default_factory=dict)
    errors: set[str] = field(default_factory=set)
    first: dict[str, float] = field(default_factory=dict)
    longest_ms: int = 0


@dataclass
class Recording:
    """Hold a whole run. *head* says what ran where, *steps* how each step ended, *machines* what machines are."""

    head: dict[str, Any]
    entries: dict[tuple[str, str, int], Entry] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, dict[str, str]] = field(default_factory=dict)

    def lines(self) -> list[dict[str, Any]]:
        """Return the recording as the JSON lines of its file."""
        found: list[dict[str, Any]] = [{"schema": SCHEMA, **self.head}]
        found += [{"step": name, **told} for name, told in self.steps.items()]
        found += [{"machine": name, "facts": facts} for name, facts in self.machines.items()]
        for (step, call, status), one in self.entries.items():
            found.append(
                {
                    "step": step, "call": call, "status": status, "count": one.count,
                    "query": sorted(one.query), "ask": _sorted(one.asked), "answer": _sorted(one.answered),
                    "errors": sorted(one.errors), "first": one.first, "longest_ms": one.longest_ms,
                }
            )  # fmt: skip
        return found


def parse(lines: Iterable[Mapping[str, Any]]) -> Recording:
    """Return the recording of a file's lines; raise ValueError when it is none."""
    head, *rest = [dict(line) for line in lines] or [{}]
    if head.pop("schema", None) != SCHEMA:
        raise ValueError(f'its first line does not say "schema": {SCHEMA}')
    found = Recording(head)
    for line in rest:
        if "call" in line:
            entry = Entry(
                int(line["count"]), set(line["query"]), _sets(line["ask"]), _sets(line["answer"]),
                set(line["errors"]), dict(line["first"]), int(line["longest_ms"]),
            )  # fmt: skip
            found.entries[str(line["step"]), str(line["call"]), int(line["status"])] = entry
        elif "machine" in line:
            found.machines[str(line["machine"])] = dict(line["facts"])
        else:
            found.steps[str(line.pop("step"))] = line
    return found


def merge(into: dict[str, set[str]], shape: Mapping[str, Iterable[str]]) -> None:
    """Add a shape to what was seen before."""
    for path, kinds in shape.items():
        into.setdefault(path, set()).update(kinds)


def _sorted(shape: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    return {path: sorted(kinds) for path, kinds in sorted(shape.items())}


def _sets(shape: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    return {path: set(kinds) for path, kinds in shape.items()}
