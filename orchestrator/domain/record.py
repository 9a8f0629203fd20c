"""
Define what tpuctl remembers of a deployment between two passes.

The record is saved before each create, so that the successor of a killed controller knows which incarnation
was requested. How observations change it: orchestrator.planning.update_record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.contract.phase import Phase
from orchestrator.domain.first_seen import Condition, FirstSeen, of_name, of_node
from orchestrator.domain.job_progress import ProgressEstimate
from orchestrator.domain.machines.capacity import CapacityHistory
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Node, NodeState, Operation, World
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.updated import updated
from orchestrator.errors import Retry

LATEST_TRY = 60.0
"""Seconds after which failures over SSH no longer count, and longest pause between two tries."""
CONFIRMED_AFTER = 30.0
"""
Seconds between the two observations that confirm an absence, and for a TPU that was unhealthy from the start: our
choice (docs/facts.md 8).
"""
TERMINAL = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED})


@dataclass(frozen=True)
class Refusal:
    """
    A create or start that the cloud refused; *at* is in seconds since the epoch.

    *on_demand* says that a TPU was requested on demand although the file says spot, *beside* that another TPU
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
    code: str = ""

    @property
    def text(self) -> str:
        """Return the refusal for people, with its error code."""
        return " ".join(filter(None, (self.code, self.message)))

    @property
    def full(self) -> bool:
        """Return whether our own TPU may have used up the quota, so the refusal says nothing about the zone."""
        return self.kind is Kind.NODE and self.retry is Retry.QUOTA and self.beside


@dataclass(frozen=True)
class Span:
    """
    From when until when a resource existed, for the bill; *until* is None while it exists.

    *spot* is None for what the file says, False for a TPU that the deadline requested on demand. *type* is
    empty for what the file says. *end_observed* is when an end was observed of which *until* is an estimate.
    """

    kind: Kind
    name: str
    zone: str
    since: float
    until: float | None = None
    spot: bool | None = None
    type: str = ""
    end_observed: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A TPU that was requested in a race and is not the newest one."""

    incarnation: int
    zone: str
    requested_at: float
    accepted: bool = False


@dataclass(frozen=True)
class Shape:
    """The settings that a TPU cannot change while it exists."""

    type: str
    runtime: str
    spot: bool
    external_ip: bool

    def __str__(self) -> str:
        """Return it as people read it, and as the record stores it."""
        price = "spot" if self.spot else "on demand"
        return f"{self.type}, {self.runtime}, {price}, external address {'yes' if self.external_ip else 'no'}"


@dataclass(frozen=True)
class NodeRecord:
    """
    The newest TPU that was requested.

    *incarnation* is its number (0: none yet), *accepted* says that the cloud accepted its create;
    *requested_at* is 0 if it certainly does not exist: its create has failed, or its deletion is done.
    *highest* is the largest number ever assigned. *shape* is the TPU that `up` wants, *unwanted* the last
    incarnation with another shape. *queued* says that a TPU was ever requested through the queue, so the
    queue is observed.
    """

    incarnation: int = 0
    zone: str = ""
    type: str = ""
    accepted: bool = False
    requested_at: float = 0.0
    highest: int = 0
    shape: Shape | None = None
    unwanted: int = 0
    preemptions: int = 0
    queued: bool = False


@dataclass(frozen=True)
class VmRecord:
    """Whether the cloud has ever accepted the VM's create."""

    accepted: bool = False


@dataclass(frozen=True)
class BucketRecord:
    """
    The bucket; *ready* says that its *grants* are made too.

    Roles take some minutes to come into force: *granted_at* is when they were last changed.
    """

    observed: bool = False
    ready: bool = False
    grants: str = ""
    granted_at: float = 0.0


@dataclass(frozen=True)
class RaceRecord:
    """
    The race of the newest TPU, and whether it is known to have won.

    *candidates* are the other TPUs that may exist. A *round* above the newest TPU is a race of its successors;
    the newest TPU works until one of them wins.
    """

    round: int = 0
    claimed: bool = False
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class JobRecord:
    """
    Which code and settings the job should have.

    *uploaded* names the bundle and agent in the bucket, *pushed* the bundle that was copied to the machines
    over SSH. *settings* is the digest of the settings that `up` wants, *settings_due* says that the machines
    have others. *before_down* is the bundle that the last `down` has found.
    """

    bundle: str = ""
    agent: str = ""
    uploaded: str = ""
    pushed: str = ""
    settings: str = ""
    settings_due: bool = False
    before_down: str = ""


@dataclass(frozen=True)
class SshRecord:
    """Since when SSH to the machines has failed, and when the next try is."""

    failed_since: float | None = None
    next_try_at: float = 0.0


@dataclass(frozen=True)
class DeadlineRecord:
    """What was requested because of the deadline."""

    on_demand: tuple[int, ...] = ()
    """Incarnations that were requested on demand because of the deadline."""
    flex_start: tuple[int, ...] = ()
    """Those of them that were requested as flex-start."""
    progress: ProgressEstimate = field(default_factory=ProgressEstimate)


@dataclass(frozen=True)
class SilenceRecord:
    """Which TPUs have sent no heartbeat."""

    never_reported: tuple[tuple[int, float], ...] = ()
    """TPUs that were given up in a row without any heartbeat, each with its time."""
    heartbeat_at_boot: tuple[int, ...] = ()
    """Incarnations whose startup script reports first; if such a one is silent, it does not run."""


@dataclass(frozen=True)
class Record:
    """Everything that is remembered of a deployment; times are in seconds since the epoch."""

    serial: int = 0
    """The larger one is newer; decides between two copies."""
    fence: int = 0
    """Fencing token of the lease under which the record was last taken."""
    started_at: float = 0.0
    self_delete_at: float = 0.0
    """When TPUs may delete themselves; 0 for never."""
    node: NodeRecord = field(default_factory=NodeRecord)
    race: RaceRecord = field(default_factory=RaceRecord)
    vm: VmRecord = field(default_factory=VmRecord)
    bucket: BucketRecord = field(default_factory=BucketRecord)
    job: JobRecord = field(default_factory=JobRecord)
    sidecars: Mapping[str, str] = field(default_factory=dict)
    """Digest of the sidecars' settings, by machine."""
    ssh: SshRecord = field(default_factory=SshRecord)
    deadline: DeadlineRecord = field(default_factory=DeadlineRecord)
    silence: SilenceRecord = field(default_factory=SilenceRecord)
    zones_used: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Refusals since the last success of their kind."""
    first_seen: Mapping[FirstSeen, float] = field(default_factory=dict)
    """Doubtful states, and since when every observation has shown them."""
    spans: tuple[Span, ...] = ()
    capacity_history: CapacityHistory = ()
    """What each zone refused, granted and took away."""
    outcome: Outcome | None = None
    """None until the deployment has ended."""
    message: str = ""
    disks: tuple[Span, ...] = ()
    """When VMs existed, running or stopped: their disks are billed."""
    up_times: tuple[float, ...] = ()
    """When `up` started the deployment, or opened it again."""


def lifetimes(record: Record, ended: float) -> tuple[tuple[float, float], ...]:
    """
    Return (start, end) of each lifetime of the deployment: from `up` to the end of its last TPU.

    The newest one lasts until *ended*. A record of an earlier version, without these times, has one.
    """
    nodes = [span for span in record.spans if span.kind is Kind.NODE]
    first = record.started_at or min((span.since for span in nodes), default=0.0)
    times = record.up_times or ((first,) if first else ())
    found = []
    for start, following in zip(times, (*times[1:], None), strict=True):
        if following is None:
            found.append((start, max(start, ended)))
            continue
        mine = [min(s.until or following, following) for s in nodes if start <= s.since < following]
        found.append((start, max(mine, default=start)))
    return tuple(found)


def first_incarnations(record: Record) -> frozenset[int]:
    """Return the incarnations with which `up` started or restarted the deployment."""
    nodes = [
        (span.since, incarnation_of(span.name, {}) or 0) for span in record.spans if span.kind is Kind.NODE
    ]
    firsts = (
        min((number for since, number in nodes if since >= start), default=0) for start in record.up_times
    )
    return frozenset(firsts) - {0}


def current_node(world: World, record: Record) -> Node | None:
    """Return the node of the newest incarnation if it was observed, else None."""
    return next((n for n in world.known_nodes if n.incarnation == record.node.incarnation), None)


def newest_incarnation(record: Record) -> int:
    """Return the largest number ever assigned to a TPU; the next TPU gets a larger one."""
    candidates = (candidate.incarnation for candidate in record.race.candidates)
    # Over everything that is known: with a reused number, an old TPU's report could pass for the new one's.
    return max(record.node.highest, record.node.incarnation, *candidates, 0)


def next_incarnation(record: Record) -> int:
    """Return the number of the next TPU; no TPU was ever requested under it."""
    node, newest = record.node, newest_incarnation(record)
    # A request raises `highest` first, so a number beyond it was only set aside. 0 is what early versions left, and
    # says nothing about what was requested.
    unused = not node.accepted and node.requested_at == 0 and 0 < node.highest < node.incarnation == newest
    return newest if unused else newest + 1


def refused_beside(record: Record, zone: str, tpu_type: str) -> bool:
    """
    Return whether the newest request, of this type and zone, was refused since our own TPU held the quota.

    Such a request is made again under its number.
    """
    node, last = record.node, next((r for r in reversed(record.refusals) if r.kind is Kind.NODE), None)
    asked = not node.accepted and node.requested_at > 0 and (node.zone, node.type) == (zone, tpu_type)
    return asked and last is not None and last.full and last.zone == zone


def setting_aside(record: Record) -> NodeRecord:
    """Return the newest TPU as one that has the next number and is not requested yet."""
    number = next_incarnation(record)
    return replace(
        record.node, incarnation=number, highest=max(record.node.highest, number - 1), accepted=False
    )


def last_incarnation(record: Record) -> int:
    """Return the incarnation of the newest requested TPU; after `down` the record holds the next number."""
    if record.node.accepted or record.node.requested_at > 0:
        return record.node.incarnation
    numbers = (incarnation_of(span.name, {}) or 0 for span in record.spans if span.kind is Kind.NODE)
    return max(numbers, default=0)


def unused_incarnations(record: Record) -> tuple[int, ...]:
    """Return the numbers before the newest TPU's that no TPU ever had: each request under one was refused."""
    names = [span.name for span in record.spans if span.kind is Kind.NODE]
    ran = {incarnation_of(name, {}) for name in names}
    # An adopted TPU has a name of its own, which does not tell its number.
    return () if None in ran else tuple(n for n in range(1, last_incarnation(record)) if n not in ran)


def unrecorded_nodes(world: World, record: Record) -> tuple[Node, ...]:
    """Return TPUs with a larger number than the record has assigned; a stale list may show a deleted one."""
    # A record without a TPU is new or lost; then `update_record` records what exists.
    if record.node.incarnation == 0:
        return ()
    return tuple(n for n in world.known_nodes if (n.incarnation or 0) > newest_incarnation(record))


def lasted(record: Record, world: World, state: FirstSeen, seconds: float) -> bool:
    """Return whether a doubtful state was observed at least twice, *seconds* apart, without a break."""
    since = record.first_seen.get(state)
    return since is not None and world.observed_at - since >= seconds


def surely_absent(record: Record, world: World, incarnation: int) -> bool:
    """
    Return whether a requested TPU certainly does not exist: two complete lists, CONFIRMED_AFTER apart, lack it.

    One list may be older than the TPU, and a failed one (Unknown) is no evidence.
    """
    return lasted(record, world, of_node(incarnation, Condition.ABSENT), CONFIRMED_AFTER)


def as_absent(record: Record, incarnation: int | None) -> Record:
    """Return the record of a TPU that certainly does not exist: its create has failed, or its deletion is done."""
    if incarnation == record.node.incarnation:
        return replace(record, node=replace(record.node, accepted=False, requested_at=0.0))
    candidates = tuple(
        candidate for candidate in record.race.candidates if candidate.incarnation != incarnation
    )
    return replace(record, race=replace(record.race, candidates=candidates))


def has_successors(record: Record) -> bool:
    """Return whether successors of the newest TPU were requested beside it, none of which has won yet."""
    return 0 < record.node.incarnation < record.race.round and not record.race.claimed


def race_to_win(record: Record, incarnation: int) -> int:
    """Return the round that a TPU of the record has to win before it starts the job, 0 for none."""
    # The TPU beside which successors were requested has won its own race already.
    return record.race.round if incarnation >= record.race.round else 0


def deletion_requested(record: Record, name: str, now: float) -> Record:
    """Return the record with the time of the last request to delete a node."""
    return replace(record, first_seen={**record.first_seen, of_name(name, Condition.DELETION_REQUESTED): now})


def forgiven(record: Record, kind: Kind) -> Record:
    """Return the record without the refusals of *kind*, because a request of that kind has succeeded."""
    return updated(record, refusals=tuple(r for r in record.refusals if r.kind is not kind))


def finished(world: World) -> bool:
    """
    Return whether every worker of the newest incarnation reports that it is done, with a committed checkpoint.

    Without a checkpoint nothing proves the report, so no machine is deleted because of it.
    """
    heartbeats = world.known_heartbeats
    # A worker's report alone ends nothing; its committed checkpoint is the proof.
    workers = {b.worker for b in heartbeats if b.phase is Phase.DONE and b.committed_step is not None}
    return bool(heartbeats) and workers == set(range(heartbeats[0].workers))
