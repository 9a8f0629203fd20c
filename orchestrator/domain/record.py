"""
What tpuctl remembers of a deployment between two passes.

The history is the deployment record: it is saved before each create, so a killed controller finds
out which incarnation it had asked for. How it grows by what is seen: orchestrator.planning.update_record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.domain.capacity import Places
from orchestrator.domain.job_progress import Progress
from orchestrator.domain.observation import Node, NodeState, Operation, Phase, Present, World
from orchestrator.domain.plan import Kind
from orchestrator.errors import Retry

LATEST_TRY = 60.0
"""Seconds after the last try over SSH after which its failures are too old to count, and longest pause."""
TERMINAL = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED})


@dataclass(frozen=True)
class Refusal:
    """
    Remember a create or start that the cloud refused. *at* is in seconds since the epoch.

    *on_demand* says that a TPU was asked for on demand though the file says spot, *beside* that another TPU
    of the deployment was still in the zone.
    """

    at: float
    zone: str
    retry: Retry
    message: str = ""
    kind: Kind = Kind.NODE
    hint: str = ""
    on_demand: bool = False
    beside: bool = False

    @property
    def full(self) -> bool:
        """Say whether our own TPU may have held the quota: this tells nothing of the zone's capacity."""
        return self.kind is Kind.NODE and self.retry is Retry.QUOTA and self.beside


@dataclass(frozen=True)
class Span:
    """
    Remember from when to when a resource existed, for the bill; *until* is None while it does.

    *spot* is None where it is what the file says, False for a TPU that the deadline has asked for on demand.
    *type* is empty where it is what the file says; a TPU of before the file was changed keeps its own.
    """

    kind: str
    name: str
    zone: str
    since: float
    until: float | None = None
    spot: bool | None = None
    type: str = ""


@dataclass(frozen=True)
class Candidate:
    """Remember a TPU that was asked for in a race and is not the newest one."""

    incarnation: int
    zone: str
    requested_at: float
    accepted: bool = False


@dataclass(frozen=True)
class History:
    """
    Hold the record of a deployment. Times are seconds since the epoch.

    *fence* is the token of the lease under which it was last claimed, *expires_at* when TPUs may delete
    themselves (0: never). *incarnation* is the newest one asked for (0: none yet), *accepted* says that the
    cloud took its create; *requested_at* is 0 when that node surely does not exist: its create has failed,
    or its deletion is done. *refusals* are those since the last success of their kind. *sightings* maps a
    doubtful state to the time it was first seen in a row. *bucket_ready* says that its grants are made too,
    *grants* which.
    *job* is the digest of the job's settings that `up` wants, *settings_due* says that machines have others,
    *pushed* names the bundle that went there over SSH, *sidecars* has digests of their settings by machine.
    *shape* is the TPU that `up` wants, *unwanted* the last incarnation that was asked for with another one.
    *round* is the race that the newest TPU was asked for in, *claimed* says that it is known to have won;
    *rivals* are the others, as long as they may be there. *highest* is the largest number ever given.
    *type* is the newest TPU's, *substitute* the same where it is not the preferred one of the file.
    *places* is what is remembered of each zone's capacity.
    *queued* says that a TPU was ever asked for through the queue, so that the queue is looked at.
    *on_demand* are the incarnations that were asked for on demand for the deadline's sake, *flex_start* those
    among them that were asked for as flex-start. *mute* are those,
    each with its time, that were given up in a row without ever a report. *beacons* are those whose startup
    script reports as its first act, so that silence says that it does not run; *granted_at* is when the roles
    on the bucket were last changed, since they take some minutes to count.
    """

    serial: int = 0
    fence: int = 0
    started_at: float = 0.0
    expires_at: float = 0.0
    incarnation: int = 0
    zone: str = ""
    accepted: bool = False
    requested_at: float = 0.0
    zones_used: tuple[str, ...] = ()
    vm_accepted: bool = False
    bucket_seen: bool = False
    bucket_ready: bool = False
    grants: str = ""
    bundle: str = ""
    agent: str = ""
    job: str = ""
    settings_due: bool = False
    shape: str = ""
    unwanted: int = 0
    uploaded: str = ""
    pushed: str = ""
    sidecars: Mapping[str, str] = field(default_factory=dict)
    remote_failed_since: float | None = None
    next_remote_at: float = 0.0
    preemptions: int = 0
    operations: tuple[Operation, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    sightings: Mapping[str, float] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    queued: bool = False
    on_demand: tuple[int, ...] = ()
    flex_start: tuple[int, ...] = ()
    mute: tuple[tuple[int, float], ...] = ()
    beacons: tuple[int, ...] = ()
    granted_at: float = 0.0
    progress: Progress = field(default_factory=Progress)
    outcome: str = ""
    reason: str = ""
    round: int = 0
    claimed: bool = False
    rivals: tuple[Candidate, ...] = ()
    highest: int = 0
    type: str = ""
    substitute: str = ""
    places: Places = ()


def current_node(world: World, history: History) -> Node | None:
    """Return the node of the newest incarnation, if it is in sight."""
    if not isinstance(world.nodes, Present):
        return None
    return next((n for n in world.nodes.value if n.incarnation == history.incarnation), None)


def noted(history: History, **fields: Any) -> History:
    """Return the record with *fields*; the same one where nothing is new, which is cheaper by far."""
    new = any(getattr(history, name) != value for name, value in fields.items())
    return replace(history, **fields) if new else history


def newest_incarnation(history: History) -> int:
    """Return the largest number that a TPU was ever given: the next one gets a larger one."""
    return max(history.highest, history.incarnation, *(r.incarnation for r in history.rivals), 0)


def strangers(world: World, history: History) -> tuple[Node, ...]:
    """Return TPUs with a larger number than the record ever gave; an old list may show one that is gone."""
    if not isinstance(world.nodes, Present) or history.incarnation == 0:
        return ()
    return tuple(n for n in world.nodes.value if (n.incarnation or 0) > newest_incarnation(history))


def stranger_key(node: Node) -> str:
    """Return the key of the sighting that says since when a stranger is in sight."""
    return f"stranger:{node.name}"


def lasted(history: History, world: World, key: str, seconds: float) -> bool:
    """Say whether a doubtful state was seen at least twice, *seconds* apart, without a break."""
    since = history.sightings.get(key)
    return since is not None and world.seen_at - since >= seconds


def deletion_key(name: str) -> str:
    """Return the key of the sighting that says since when a node is being deleted, by its last request."""
    return f"deleting:{name}"


def deletion_asked(history: History, name: str, now: float) -> History:
    """Return the history with the time of the last request to delete a node."""
    return replace(history, sightings={**history.sightings, deletion_key(name): now})


def forgiven(history: History, kind: Kind) -> History:
    """Return the history without the refusals of *kind*: what was refused has succeeded."""
    return noted(history, refusals=tuple(r for r in history.refusals if r.kind is not kind))


def finished(world: World) -> bool:
    """
    Say whether every worker of the newest incarnation has reported that it is done, and what it has saved.

    Done without a checkpoint is a claim that nothing proves: no machine is deleted on it.
    """
    if not isinstance(world.heartbeats, Present) or not world.heartbeats.value:
        return False
    beats = world.heartbeats.value
    workers = {b.worker for b in beats if b.phase is Phase.DONE and b.committed_step is not None}
    return workers == set(range(beats[0].workers))
