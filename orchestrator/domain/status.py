"""
Hold the status of a deployment: what exists, how far the job is, what comes next.

`status --json` prints it, the watcher publishes it, and views show it. Imports little, because `tpuctl status`
loads it before anything else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from orchestrator.domain.plan import kind_title
from orchestrator.domain.text.format_name import format_name
from orchestrator.domain.wait import Wait


class DeploymentState(Enum):
    """
    The state of a deployment, which every command shows by the same `phrase`.

    The value is what `--json` prints. TPU_LOST and NO_TPU: no watcher runs that would request one; REPLACING:
    one does. REMAINING: the deployment is not up, and machines of it exist. DOWN: it was up, and has none.
    """

    NOT_UP = "not-up"
    STARTING = "starting"
    RUNNING = "running"
    PREEMPTING = "preempting"
    TPU_LOST = "tpu-lost"
    NO_TPU = "no-tpu"
    REPLACING = "replacing"
    RESUMING = "resuming"
    DONE = "done"
    UNCOMMITTED = "uncommitted"
    FAILED = "failed"
    LIMIT_REACHED = "limit-reached"
    REFUSED = "refused"
    REMAINING = "machines-remain"
    DOWN = "down"
    DELETED = "deleted"
    UNKNOWN = "unknown"

    @property
    def phrase(self) -> str:
        """Return the state in the words that people read."""
        return _PHRASES.get(self, self.value)

    @property
    def without_tpu(self) -> bool:
        """Return whether the job needs a TPU and has none, so that the last heartbeat says nothing about now."""
        return self in {DeploymentState.TPU_LOST, DeploymentState.NO_TPU, DeploymentState.REPLACING}


_PHRASES = {
    DeploymentState.NOT_UP: "not up",
    DeploymentState.PREEMPTING: "being preempted",
    DeploymentState.TPU_LOST: "TPU lost, no watcher",
    DeploymentState.NO_TPU: "no TPU, no watcher",
    DeploymentState.REPLACING: "replacing its TPU",
    DeploymentState.UNCOMMITTED: "ended, no checkpoint",
    DeploymentState.LIMIT_REACHED: "budget or ttl used up",
    DeploymentState.REMAINING: "machines remain",
    DeploymentState.DOWN: "down, data kept",
    DeploymentState.DELETED: "deleted with its data",
    DeploymentState.UNKNOWN: "not known",
}


@dataclass(frozen=True, kw_only=True)
class ResourceStatus:
    """A bucket, vm or tpu (its *kind*); *state* is "absent", "unknown: WHY" or a word of the API."""

    kind: str
    name: str
    zone: str
    state: str

    @property
    def shown(self) -> tuple[str, str, str]:
        """Return kind, zone and name for people; a machine that is absent has neither zone nor name."""
        there = self.kind == "bucket" or self.state != "absent"
        return kind_title(self.kind), (there and self.zone) or "-", (there and self.name) or "-"


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """
    The last heartbeat of a worker; ages are in seconds.

    *checkpoint_step* is the one that it has committed last, *reported_target_steps* the last step of the training
    as the job reports it; `job.target_steps` counts before it. *loss_step* is the step of the loss if it is an
    earlier one. *saved_in_attempt* is false until a start has saved, whatever the one before it has. Fields with
    a default are those that an earlier release did not publish.
    """

    worker: int
    phase: str
    step: int | None
    loss: float | None
    loss_step: int | None = None
    steps_per_second: float | None = None
    reported_target_steps: int | None = None
    progress_from: str = ""
    checkpoint_step: int | None
    checkpoint_counted: bool = False
    saved_in_attempt: bool = False
    format: str = ""
    checkpoint_age_s: float | None
    heartbeat_age_s: float | None
    attempts: int = 0
    image: str = ""
    xla_programs_restored: int | None = None
    xla_programs_compiled: int | None = None
    message: str = ""

    @property
    def format_name(self) -> str:
        """Return in which format the job saves, for people; "" before its first save."""
        return format_name(self.format)


@dataclass(frozen=True, kw_only=True)
class WatcherStatus:
    """The holder of the lease; *on* is "vm" for the loop on the VM, else "elsewhere"."""

    on: str
    who: str
    command: str
    since: float = 0.0
    renewed_age_s: float
    alive: bool


@dataclass(frozen=True)
class SafetyNet:
    """One safety net: the kind of resource it ends, whether it is active, and in *message* when, or why not."""

    name: str
    active: bool
    message: str

    @property
    def title(self) -> str:
        """Return the kind for people."""
        return kind_title(self.name)


@dataclass(frozen=True, kw_only=True)
class DeadlineStatus:
    """When the job should be done, in words whether it will be, and the TPU's mode: spot, on-demand or wait."""

    due: str
    forecast: str
    mode: str


@dataclass(frozen=True, kw_only=True)
class SavesStatus:
    """How often the job saves, in seconds, and why, in words (`SaveInterval`)."""

    save_interval_s: float | None
    save_pause_s: float | None
    save_pause_from: str
    time_between_interruptions_s: float | None
    observed_save_interval_s: float | None
    message: str


@dataclass(frozen=True, kw_only=True)
class SidecarStatus:
    """A sidecar, and the machine ("vm" or "tpu") and port that it has."""

    name: str
    on: str
    port: int


@dataclass(frozen=True, kw_only=True)
class StatusSource:
    """Who has observed the status, and how many seconds ago."""

    by: str
    age_s: float


_EARLIER = {
    "spent": DeploymentState.LIMIT_REACHED.value,
    "unclaimed": DeploymentState.UNCOMMITTED.value,
}
"""Words of an outcome in what earlier versions published."""
_EARLIER_KINDS = {"TPU": "tpu", "VM": "vm"}
"""Kinds of resources, also of safety nets, in what earlier versions published."""
FROM_CLOUD = StatusSource(by="cloud", age_s=0.0)


@dataclass(frozen=True, kw_only=True)
class DeploymentStatus:
    """
    The status of a deployment; the order of the fields is that of the keys in JSON.

    *checkpoint_step* is that of the newest checkpoint with a part of every worker, *resumes_from* the step from
    which a job without a running TPU goes on. *refusal_hint* is what cures the refusal of a TPU or VM that
    waiting does not cure, *aside_message* which newer checkpoints the attempt skips. *next_changes* are what
    the next pass does, *waits_for* why it does nothing yet. *watch_on_vm* says that the deployment file wants
    the loop on the VM, *watch_poll_s* how often it wants a pass. Fields with a default are those that an
    earlier release did not publish.
    """

    name: str
    project: str
    state: DeploymentState = DeploymentState.UNKNOWN
    outcome: str | None
    limit_reached: str = ""
    message: str = ""
    uncommitted_message: str = ""
    ignored_message: str = ""
    failing_message: str = ""
    aside_message: str = ""
    refusal_hint: str = ""
    rescued_message: str = ""
    incarnation: int
    unused_incarnations: tuple[int, ...] = ()
    preemptions: int
    up: bool = True
    deleted_at: float | None = None
    usd: float
    upper_usd: float
    unpriced: tuple[str, ...] = ()
    resources: tuple[ResourceStatus, ...]
    workers: tuple[WorkerStatus, ...]
    checkpoint_step: int | None
    resumes_from: int | None = None
    watcher: WatcherStatus | None
    watch_on_vm: bool = False
    safety_nets: tuple[SafetyNet, ...] = ()
    next_changes: tuple[str, ...]
    waits_for: tuple[Wait, ...] = ()
    next_pass_in_s: float | None
    watch_poll_s: float | None = None
    target_steps: int | None
    eta_s: float | None = None
    budget_usd: float | None
    deadline: DeadlineStatus | None = None
    saves: SavesStatus | None = None
    ttl_remaining_s: float | None
    sidecars: tuple[SidecarStatus, ...]
    source: StatusSource

    @property
    def upcoming(self) -> tuple[Wait, ...]:
        """Return what is waited for, else the changes of the next pass."""
        return self.waits_for or tuple(map(Wait, self.next_changes))

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> "DeploymentStatus":
        """
        Parse a published status; keys of a later release are left out.

        Raise KeyError, TypeError or AttributeError if it is none.
        """
        known = _fields_of(cls, body)
        workers = tuple(WorkerStatus(**_fields_of(WorkerStatus, row)) for row in body["workers"])
        known |= {
            "state": _state(body.get("state")),
            "outcome": _EARLIER.get(body["outcome"], body["outcome"]),
            "resources": tuple(
                ResourceStatus(
                    **_fields_of(
                        ResourceStatus, {**row, "kind": _EARLIER_KINDS.get(row["kind"], row["kind"])}
                    )
                )
                for row in body["resources"]
            ),
            "workers": workers,
            "checkpoint_step": known.get("checkpoint_step", _least_checkpoint(workers)),
            "upper_usd": known.get("upper_usd", known["usd"]),
            "unpriced": tuple(body.get("unpriced", ())),
            "unused_incarnations": tuple(known.get("unused_incarnations", ())),
            "next_changes": tuple(body["next_changes"] if "next_changes" in body else _earlier_changes(body)),
            "waits_for": _waits_of(body),
            "safety_nets": tuple(
                SafetyNet(
                    **_fields_of(SafetyNet, {**row, "name": _EARLIER_KINDS.get(row["name"], row["name"])})
                )
                for row in body.get("safety_nets", ())
            ),
            "watcher": _parsed(WatcherStatus, body["watcher"]),
            "deadline": _parsed(DeadlineStatus, body.get("deadline")),
            "saves": _parsed(SavesStatus, body.get("saves")),
            "sidecars": tuple(SidecarStatus(**_fields_of(SidecarStatus, row)) for row in body["sidecars"]),
            "source": StatusSource(**_fields_of(StatusSource, body["source"])),
        }
        return cls(**known)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `status --json`."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}


_EARLIER_KEYS: Mapping[type[Any], Mapping[str, str]] = {
    DeploymentStatus: {
        "message": "reason", "uncommitted_message": "uncommitted", "rescued_message": "unclaimed",
        "usd": "cost_usd", "upper_usd": "cost_upper_usd", "checkpoint_step": "checkpoint",
        "unused_incarnations": "unused_numbers",
    },
    WorkerStatus: {
        "checkpoint_step": "checkpoint", "steps_per_second": "rate", "reported_target_steps": "total_steps",
    },
    WatcherStatus: {"on": "where"},
    DeadlineStatus: {"mode": "runs_on"},
    SafetyNet: {"active": "armed", "message": "text"},
    SavesStatus: {"message": "text"},
    Wait: {"message": "note"},
}  # fmt: skip
"""Keys under which an earlier release published a field."""


def _state(value: Any) -> DeploymentState:
    """Return a published state; that of a later release, or of one that published none, is not known."""
    known = {one.value: one for one in DeploymentState}
    return known.get(_EARLIER.get(value, value), DeploymentState.UNKNOWN)


def _earlier_changes(body: Mapping[str, Any]) -> Sequence[str]:
    """Return the changes among the `next_steps` of an earlier release: either all of them are, or none."""
    return () if body.get("waits") else body["next_steps"]


def _waits_of(body: Mapping[str, Any]) -> tuple[Wait, ...]:
    """Return what is waited for; a time that an earlier release published in a sentence stays there."""
    found = tuple(Wait(**_fields_of(Wait, row)) for row in body.get("waits_for", ()))
    return found or (tuple(map(Wait, body["next_steps"])) if body.get("waits") else ())


def _least_checkpoint(workers: Sequence[WorkerStatus]) -> int | None:
    """Return the checkpoint that all workers have, as far as the last one of each shows it."""
    steps = [worker.checkpoint_step for worker in workers]
    return None if None in steps else min((step for step in steps if step is not None), default=None)


def _fields_of(shape: type[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    earlier = {new: row[old] for new, old in _EARLIER_KEYS.get(shape, {}).items() if old in row}
    under_keys = {**earlier, **row}
    return {one.name: under_keys[one.name] for one in fields(shape) if one.name in under_keys}


def _parsed(shape: type[Any], row: Mapping[str, Any] | None) -> Any:
    return None if not row else shape(**_fields_of(shape, row))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
