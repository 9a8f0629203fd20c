"""Compare an approved plan with the present: what it was based on, what it changes, and what has moved since."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.domain.observation import Absent, Observed, Present, Unknown, World
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.record import Record
from orchestrator.errors import ConflictError, TransientError, UsageError

SCHEMA = 1
DELIVERIES = frozenset({Kind.BUNDLE, Kind.JOB, Kind.SIDECARS})
"""Kinds of changes that deliver code or settings to existing machines."""
_STORED = {"observations": "sights"}
"""Fields that have another key in a plan file, as those of earlier versions have it."""


@dataclass(frozen=True)
class Approved:
    """
    A plan as `plan --output` writes it.

    *spec* is the parsed deployment file, *file_digest* the digest of its bytes. *observations* describes in words
    what was observed; *changes* are those of the plan, in order. *path* is the file it was read from.
    """

    deployment: str
    project: str
    cloud: str
    file: str
    file_digest: str
    tpuctl: str
    bundle: str
    agent: str
    spec: Mapping[str, Any]
    observations: Mapping[str, str]
    changes: tuple[Mapping[str, Any], ...]
    path: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the plan file, without its checksum."""
        body = {"schema": SCHEMA, **asdict(self), "changes": [dict(change) for change in self.changes]}
        del body["path"]
        return {_STORED.get(name, name): value for name, value in body.items()}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> "Approved":
        """Parse the content of a plan file; raise ValueError if it is of another version."""
        # An approved plan is carried out exactly, so the plan of another version is not interpreted.
        if body.get("schema") != SCHEMA:
            raise ValueError(f"it has schema {body.get('schema')!r}, this tpuctl knows {SCHEMA}")
        names = {key: name for name, key in _STORED.items()}
        fields = {names.get(key, key): value for key, value in body.items() if key != "schema"}
        try:
            return cls(**{**fields, "changes": tuple(fields["changes"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is not a plan: {error}") from error


def observations_of(world: World, record: Record) -> dict[str, str]:
    """Return what a plan is based on, in words; raise TransientError if something could not be observed."""
    # A plan over something Unknown would let the user approve a guess.
    blind = [s for s in (world.bucket, world.vm, world.nodes, world.heartbeats) if isinstance(s, Unknown)]
    if blind:
        raise TransientError(
            f"no plan can be made: {blind[0].message}",
            hint=blind[0].hint or "repeat the command", changed="nothing was changed",
        )  # fmt: skip
    found = {f"TPU {node.name}": f"{node.state.name} in {node.zone}" for node in world.known_nodes}
    return {
        "bucket": _word(world.bucket, lambda bucket: f"in {bucket.location}"),
        "VM": _word(world.vm, lambda vm: f"{vm.state.value} in {vm.zone}"),
        **found,
        "incarnation": str(record.node.incarnation),
        "code in the bucket": record.job.uploaded or "none",
        "end": record.outcome.value if record.outcome else "none",
    }


def _word(observed: Observed[Any], say: Any) -> str:
    return (
        "absent"
        if isinstance(observed, Absent) or not isinstance(observed, Present)
        else str(say(observed.value))
    )


def differences(was: Approved, now: Approved) -> tuple[str, ...]:
    """Return the differences between the approved plan and the one that would be made now."""
    said = []
    for what, before, after in (
        ("the deployment file", was.file_digest, now.file_digest),
        ("the code", was.bundle, now.bundle),
        ("tpuctl itself", (was.tpuctl, was.agent), (now.tpuctl, now.agent)),
    ):
        if before != after:
            said.append(f"{what} was changed")
    for name in dict.fromkeys((*was.observations, *now.observations)):
        before, after = was.observations.get(name, "absent"), now.observations.get(name, "absent")
        if before != after:
            said.append(f"{name}: was {before}, is {after}")
    if not said and [_key(c) for c in was.changes] != [_key(c) for c in now.changes]:
        said.append(
            f"the plan is another one: {_changes_text(now.changes)} instead of {_changes_text(was.changes)}"
        )
    return tuple(said)


def refuse_changed(was: Approved, now: Approved) -> None:
    """Raise ConflictError if the approved plan would not be made any more."""
    found = differences(was, now)
    if found:
        raise ConflictError(
            f"{was.path} does not fit any more: {'; '.join(found)}",
            hint=_plan_again(was.path), changed="nothing was changed", code="TPU-410",
        )  # fmt: skip


def refuse_others(was: Approved, plan: Plan) -> None:
    """
    Raise ConflictError if a pass wants a change that was not approved.

    Delivering code and settings is always allowed: `refuse_changed` has checked that they are those of the
    plan.
    """
    allowed = {_key(change) for change in was.changes}
    changes = (c for c in plan.changes if c.kind not in DELIVERIES)
    other = next((c for c in changes if _key(c.stored()) not in allowed), None)
    if other is not None:
        raise ConflictError(
            f"{was.path} does not fit any more: it does not hold {_change_text(other.stored())} ({other.message})",
            hint=_plan_again(was.path), changed="what the plan holds may exist by now; see `tpuctl status`",
            code="TPU-410",
        )  # fmt: skip


def needs_same_cloud(was: Approved, cloud: str) -> None:
    """Raise UsageError if the plan is for another cloud than the selected one."""
    if was.cloud != cloud:
        raise UsageError(
            f"{was.path} is for --cloud {was.cloud}, not for {cloud}",
            hint=f"tpuctl up --cloud {was.cloud} {was.path}", changed="nothing was changed",
        )  # fmt: skip


def _plan_again(file: str) -> str:
    return f"see a new one: tpuctl plan --output {file}"


def _key(change: Mapping[str, Any]) -> tuple[Any, ...]:
    """
    Return the key by which two changes count as the same.

    Starting and restarting the job are one; a bucket has no name before it exists.
    """
    kind = change["kind"]
    if kind in {Kind.JOB.value, Kind.BUCKET.value}:
        return (kind, "" if kind == Kind.JOB.value else change["verb"])
    # Without the reason, whose text contains ages and differs between two passes.
    return (kind, change["verb"], change["name"], change["zone"], change["incarnation"])


def _changes_text(changes: tuple[Mapping[str, Any], ...]) -> str:
    return ", ".join(_change_text(change) for change in changes) or "no change"


def _change_text(change: Mapping[str, Any]) -> str:
    where = f" in {change['zone']}" if change["zone"] else ""
    return " ".join(f"{change['verb']} {Kind(change['kind']).title} {change['name']}".split()) + where
