"""The plan: what one pass will change, in order, and why; or why nothing."""

from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.errors import TpuctlError


class Kind(Enum):
    """Name what a change or an operation is about."""

    BUCKET = "bucket"
    VM = "vm"
    NODE = "node"
    BUNDLE = "bundle"
    JOB = "job"
    SIDECARS = "sidecars"
    QUEUED = "queued resource"
    """Of operations only: a plan and the record know the TPU that it makes."""

    @property
    def title(self) -> str:
        """Return what people call it; the value is for records and programs."""
        return {"node": "TPU", "vm": "VM", "bundle": "code"}.get(self.value, self.value)


class Verb(Enum):
    """Name a change; the value is the sign that people see."""

    CREATE = "+"
    DELETE = "-"
    START = "^"
    STOP = "="
    UPDATE = "~"

    @property
    def word(self) -> str:
        """Return the word for programs: in the record, the journal and `--json`."""
        return self.name.lower()


MAKING = frozenset({Verb.CREATE, Verb.START})
"""What brings a machine about."""


class Outcome(Enum):
    """
    Name how a deployment can end.

    UNCLAIMED: the job has exited with status 0, and no complete checkpoint holds what it trained.
    """

    DONE = "done"
    UNCLAIMED = "unclaimed"
    FAILED = "failed"
    SPENT = "spent"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """Hold one create, start, stop or delete."""

    kind: Kind
    verb: Verb
    name: str
    why: str
    zone: str = ""
    incarnation: int | None = None
    round: int = 0
    """Race in which a TPU is requested; 0 for none."""
    type: str = ""
    substitute: bool = False
    """The TPU type is not the one that the file prefers."""
    on_demand: bool = False
    """Requested on demand because of the deadline, though the file says spot."""
    flex_start: bool = False
    """With *on_demand*: requested as flex-start."""
    never_reported: bool = False
    """The TPU is deleted because it never reported."""
    beside: bool = False
    """The TPU before it keeps working until a successor is claimed."""

    @property
    def asks_for_tpu(self) -> bool:
        """Say whether a TPU is asked for."""
        return (self.kind, self.verb) == (Kind.NODE, Verb.CREATE)

    @property
    def details(self) -> dict[str, str]:
        """Return what people want to know of it besides. Nothing reads it back."""
        capacity = "flex-start, for the deadline" if self.flex_start else "on demand, for the deadline"
        found = {"capacity": capacity} if self.on_demand else {}
        return found | ({"mute": "it has never reported"} if self.never_reported else {})

    @property
    def lane(self) -> tuple[Kind, str]:
        """Return what is done one after the other: a zone that does not answer keeps no other from its race."""
        return self.kind, self.zone if self.round else ""

    def as_dict(self) -> dict[str, object]:
        """Return the change as `--json` prints it."""
        race: dict[str, object] = {"round": self.round} if self.round else {}
        kind = {"type": self.type} if self.substitute else {}
        beside = {"beside": True} if self.beside else {}
        return {
            "kind": self.kind.value,
            "verb": self.verb.word,
            "name": self.name,
            "zone": self.zone,
            "incarnation": self.incarnation,
            "why": self.why,
            "details": self.details,
            **race,
            **kind,
            **beside,
        }


@dataclass(frozen=True)
class FailedChange:
    """Pair a change with the error that it met."""

    change: Change
    error: TpuctlError


@dataclass(frozen=True)
class Step:
    """
    Hold one resource's changes, or what it waits for and when to look again (seconds).

    *blocked* says that another resource has to come first.
    """

    changes: tuple[Change, ...] = ()
    waiting: str = ""
    wake_in: float | None = None
    blocked: bool = False


@dataclass(frozen=True)
class Plan:
    """
    Hold the changes of one pass; *waiting* says why there are none, or what is still under way.

    *wake_in* is the number of seconds after which another look is worth it, None for the usual poll.
    """

    changes: tuple[Change, ...] = ()
    waiting: tuple[str, ...] = ()
    outcome: Outcome | None = None
    reason: str = ""
    wake_in: float | None = None

    @property
    def empty(self) -> bool:
        """Say whether nothing would be changed."""
        return not self.changes

    def making(self, kinds: frozenset[Kind]) -> "Plan":
        """Return the plan without what it would make of other kinds; what it takes away or stops stays."""
        ends = {Verb.DELETE, Verb.STOP}
        changes = tuple(c for c in self.changes if c.kind in kinds or c.verb in ends)
        return self if len(changes) == len(self.changes) else replace(self, changes=changes)

    def leaving(self, kinds: frozenset[Kind]) -> "Plan":
        """Return the plan without any change of these kinds."""
        return replace(self, changes=tuple(c for c in self.changes if c.kind not in kinds))
