"""Define the plan: what one pass will change, in order, and why; or why nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from orchestrator.domain.wait import Wait
from orchestrator.errors import TpuctlError


class Kind(Enum):
    """The kind of resource that a change or an operation is about."""

    BUCKET = "bucket"
    VM = "vm"
    NODE = "node"
    BUNDLE = "bundle"
    JOB = "job"
    SIDECARS = "sidecars"
    QUEUED = "queued resource"
    """For operations only; plans and the record name the TPU that it creates."""

    @property
    def word(self) -> str:
        """Return the word that `--json` and metrics use; record, journal and stored events have the value."""
        return _WORDS.get(self.value, self.value)

    @property
    def title(self) -> str:
        """Return the name for people."""
        return kind_title(self.word)


_WORDS = {"node": "tpu"}
"""Kinds that are stored under another word than `--json` has."""
_VALUES = {word: value for value, word in _WORDS.items()}


def kind_title(word: str) -> str:
    """Return the name for people of what `--json` calls *word*."""
    return {"tpu": "TPU", "vm": "VM", "bundle": "code"}.get(word, word)


class Verb(Enum):
    """A change; the value is the sign that people see in a plan."""

    CREATE = "+"
    DELETE = "-"
    START = "^"
    STOP = "="
    UPDATE = "~"

    @property
    def word(self) -> str:
        """Return the word that the record, the journal and `--json` use."""
        return self.name.lower()


MAKING = frozenset({Verb.CREATE, Verb.START})
"""Verbs after which a machine runs."""


class Outcome(Enum):
    """
    How a deployment can end.

    UNCOMMITTED: the job exited with status 0, but no complete checkpoint holds what it trained. LIMIT_REACHED:
    ttl or budget is used up.
    """

    DONE = "done"
    UNCOMMITTED = "uncommitted"
    FAILED = "failed"
    LIMIT_REACHED = "limit-reached"
    REFUSED = "refused"

    @property
    def phrase(self) -> str:
        """Return the end in the words that people read; the value is for programs."""
        return {
            Outcome.UNCOMMITTED: "ended without a checkpoint",
            Outcome.LIMIT_REACHED: "budget or ttl used up",
        }.get(self, self.value)


class LoopRule(Enum):
    """
    The rule that has decided about a resource or the deployment.

    Decisions return it, `explain` tells it; the value is what `explain --json` prints, so it never changes.
    """

    UNKNOWN = "observation.unknown"
    ABSENCE_UNCONFIRMED = "absence.unconfirmed"
    END_DONE = "end.done"
    END_UNCOMMITTED = "end.uncommitted"
    END_FAILED = "end.failed"
    END_LIMIT_REACHED = "end.limit-reached"
    END_REFUSED = "end.refused"
    END_NONE = "end.none"
    END_DOWN = "end.down"
    BUCKET_FIRST = "bucket.first"
    BUCKET_GONE = "bucket.gone"
    BUCKET_PRESENT = "bucket.present"
    VM_NONE = "vm.none"
    VM_CREATE = "vm.create"
    VM_START = "vm.start"
    VM_OPERATION = "vm.operation"
    VM_RUNNING = "vm.running"
    TPU_CREATE = "tpu.create"
    TPU_ENDED = "tpu.ended"
    TPU_PREEMPTING = "tpu.preempting"
    TPU_RACE = "tpu.race"
    TPU_NEXT = "tpu.next"
    TPU_CREATING = "tpu.creating"
    TPU_QUEUED = "tpu.queued"
    TPU_TRANSIENT_STATE = "tpu.transient-state"
    TPU_REPORTS = "tpu.reports"
    TPU_UNHEALTHY = "tpu.unhealthy"
    TPU_UNREACHABLE = "tpu.unreachable"
    TPU_NEVER_REPORTED = "tpu.never-reported"
    TPU_READY = "tpu.ready"
    TPU_UNWANTED = "tpu.unwanted"
    REFUSED_WAIT = "refused.wait"
    REFUSED_FINAL = "refused.final"
    JOB_WAITS = "job.waits"
    JOB_PUSH = "job.push"
    JOB_SILENT = "job.silent"
    JOB_STARTS = "job.starts"
    JOB_UNCOMMITTED = "job.uncommitted"
    JOB_FAILING = "job.failing"
    JOB_IGNORES_CHECKPOINT = "job.ignores-checkpoint"
    SAVES_AUTO = "saves.auto"
    SAVES_FIXED = "saves.fixed"
    JOB_RUNS = "job.runs"
    WATCHER_RUNNING = "watcher.running"
    WATCHER_LEASE_EXPIRED = "watcher.lease-expired"
    WATCHER_NONE = "watcher.none"


@dataclass(frozen=True)
class Change:
    """One create, start, stop, update or delete."""

    kind: Kind
    verb: Verb
    name: str
    message: str
    zone: str = ""
    incarnation: int | None = None
    round: int = 0
    """Race in which a TPU is requested; 0 for none."""
    type: str = ""
    substitute: bool = False
    """The TPU type is not the one that the file prefers."""
    on_demand: bool = False
    """Requested on demand because of the deadline, although the file says spot."""
    flex_start: bool = False
    """With *on_demand*: requested as flex-start."""
    never_reported: bool = False
    """The TPU is deleted because it never reported."""
    beside: bool = False
    """The TPU before it keeps working until a successor is claimed."""

    @property
    def requests_tpu(self) -> bool:
        """Return whether the change requests a TPU."""
        return (self.kind, self.verb) == (Kind.NODE, Verb.CREATE)

    @property
    def details(self) -> dict[str, str]:
        """Return further details for people; no code reads them back."""
        capacity = "flex-start, for the deadline" if self.flex_start else "on demand, for the deadline"
        found = {"capacity": capacity} if self.on_demand else {}
        # `--json` prints the key: programs may look for it.
        return found | ({"never_reported": "it has never reported"} if self.never_reported else {})

    @property
    def lane(self) -> tuple[Kind, str]:
        """Return the key of changes that run in order; each zone has its own, so a slow one delays no other."""
        return self.kind, self.zone if self.round else ""

    def as_dict(self) -> dict[str, object]:
        """Return the change as `--json` prints it."""
        race: dict[str, object] = {"round": self.round} if self.round else {}
        kind = {"type": self.type} if self.substitute else {}
        beside = {"beside": True} if self.beside else {}
        return {
            "kind": self.kind.word,
            "verb": self.verb.word,
            "name": self.name,
            "zone": self.zone,
            "incarnation": self.incarnation,
            "message": self.message,
            "details": self.details,
            **race,
            **kind,
            **beside,
        }

    def stored(self) -> dict[str, object]:
        """Return the change as journal, stored events and plan files have it."""
        return stored_change(self.as_dict())


def stored_change(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change, as `--json` prints it, with the older words of what is stored."""
    found = {"why" if key == "message" else key: value for key, value in body.items()}
    return found | {"kind": _VALUES.get(body["kind"], body["kind"])}


def published_change(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change that was stored as `--json` prints it."""
    found = {"message" if key == "why" else key: value for key, value in body.items()}
    return found | {"kind": _WORDS.get(body["kind"], body["kind"])}


@dataclass(frozen=True)
class FailedChange:
    """Pair a change with the error that it met; *waiting* is the sentence for an ordinary wait, else empty."""

    change: Change
    error: TpuctlError
    waiting: str = ""


@dataclass(frozen=True)
class Decision:
    """
    One resource's changes, or what it waits for and in how many seconds to poll again.

    *blocked* says that another resource has to be created first. *rule* is the one that decided; END_NONE, the
    general one, for code and sidecars, which have no rules of their own.
    """

    changes: tuple[Change, ...] = ()
    wait: Wait | None = None
    wake_in: float | None = None
    blocked: bool = False
    rule: LoopRule = LoopRule.END_NONE

    @property
    def waiting(self) -> str:
        """Return the sentence about what is waited for; empty for nothing."""
        return self.wait.text if self.wait else ""

    @property
    def settled(self) -> bool:
        """Return whether the resource is as it should be: nothing to change, nothing to wait for."""
        return not self.changes and self.wait is None


@dataclass(frozen=True)
class Plan:
    """
    The changes of one pass; *waits* says why there are none, or what is still under way.

    *wake_in* is the number of seconds until the next pass is useful, None for the usual poll. *limit_reached* names
    the setting whose limit has ended it: watch.ttl or watch.budget_usd.
    """

    changes: tuple[Change, ...] = ()
    waits: tuple[Wait, ...] = ()
    outcome: Outcome | None = None
    message: str = ""
    wake_in: float | None = None
    limit_reached: str = ""

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the sentences about what is waited for."""
        return tuple(wait.text for wait in self.waits)

    @property
    def empty(self) -> bool:
        """Return whether the plan changes nothing."""
        return not self.changes

    @property
    def settled(self) -> bool:
        """Return whether the pass has nothing to change and nothing to wait for."""
        return not self.changes and not self.waits

    def creating_only(self, kinds: frozenset[Kind]) -> "Plan":
        """Return the plan without creates and starts of other kinds; deletes and stops stay."""
        # A pass that may create nothing still ends what costs money, so that budget and ttl hold.
        ends = {Verb.DELETE, Verb.STOP}
        changes = tuple(c for c in self.changes if c.kind in kinds or c.verb in ends)
        return self if len(changes) == len(self.changes) else replace(self, changes=changes)

    def without(self, kinds: frozenset[Kind]) -> "Plan":
        """Return the plan without any change of these kinds."""
        return replace(self, changes=tuple(c for c in self.changes if c.kind not in kinds))
