"""
What tpuctl remembers of a deployment between two passes.

It is saved before each create, so that whoever comes after a killed controller finds out which incarnation it
had asked for. How it grows by what is seen: orchestrator.planning.update_record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.domain.capacity import Places
from orchestrator.domain.first_seen import FirstSeen, Sign, of_name, of_node
from orchestrator.domain.job_progress import Progress
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Node, NodeState, Operation, Phase, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.updated import updated
from orchestrator.errors import Retry

LATEST_TRY = 60.0
"""Seconds after the last try over SSH after which its failures are too old to count, and longest pause."""
CONFIRMED_AFTER = 30.0
"""Seconds between two looks at an absence before it is believed: our choice (docs/facts.md 8)."""
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
    code: str = ""

    @property
    def text(self) -> str:
        """Return the refusal as people read it."""
        return " ".join(filter(None, (self.code, self.message)))

    @property
    def full(self) -> bool:
        """Say whether our own TPU may have held the quota: this says nothing about the zone's capacity."""
        return self.kind is Kind.NODE and self.retry is Retry.QUOTA and self.beside


@dataclass(frozen=True)
class Span:
    """
    Remember from when to when a resource existed, for the bill; *until* is None while it does.

    *spot* is None where it is what the file says, False for a TPU that the deadline has asked for on demand.
    *type* is empty where it is what the file says; a TPU of before the file was changed keeps its own.
    """

    kind: Kind
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
class Shape:
    """Hold what a TPU cannot change while it exists, as a deployment file asks for it."""

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
    Remember the newest TPU that was requested.

    *incarnation* is its number (0: none yet), *accepted* says that the cloud took its create; *requested_at*
    is 0 when it surely does not exist: its create has failed, or its deletion is done. *highest* is the largest
    number ever given. *shape* is the TPU that `up` wants, *unwanted* the last incarnation that was asked for
    with another one. *queued* says that a TPU was ever asked for through the queue, so that the queue is looked
    at.
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
    """Remember whether the cloud ever took the VM's create."""

    accepted: bool = False


@dataclass(frozen=True)
class BucketRecord:
    """
    Remember the bucket; *ready* says that its *grants* are made too.

    Roles take some minutes to count: *granted_at* is when they were last changed.
    """

    observed: bool = False
    ready: bool = False
    grants: str = ""
    granted_at: float = 0.0


@dataclass(frozen=True)
class RaceRecord:
    """
    Remember the race that the newest TPU was asked for in, and whether it is known to have won.

    *rivals* are the other TPUs, as long as they may be there. A *round* above the newest TPU is a race of its
    successors: it works until one of them is named.
    """

    round: int = 0
    claimed: bool = False
    rivals: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class JobRecord:
    """
    Remember which code and settings the job is to have.

    *uploaded* names the bundle and agent in the bucket, *pushed* the bundle that went to the machines over SSH.
    *settings* is the digest of the settings that `up` wants, *settings_due* says that machines have others.
    """

    bundle: str = ""
    agent: str = ""
    uploaded: str = ""
    pushed: str = ""
    settings: str = ""
    settings_due: bool = False


@dataclass(frozen=True)
class SshRecord:
    """Remember since when SSH to the machines has failed, and when it is tried again."""

    failed_since: float | None = None
    next_try_at: float = 0.0


@dataclass(frozen=True)
class DeadlineRecord:
    """Remember what the deadline has led to."""

    on_demand: tuple[int, ...] = ()
    """Incarnations that were requested on demand because of the deadline."""
    flex_start: tuple[int, ...] = ()
    """Those of them that were requested as flex-start."""
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class SilenceRecord:
    """Remember which TPUs send no heartbeat."""

    never_reported: tuple[tuple[int, float], ...] = ()
    """TPUs that were given up in a row without any heartbeat, each with its time."""
    reports_at_boot: tuple[int, ...] = ()
    """Incarnations whose startup script reports first: if they are silent, it does not run."""


@dataclass(frozen=True)
class Record:
    """Hold everything that is remembered of a deployment. Times are seconds since the epoch."""

    serial: int = 0
    """Larger is newer: if two copies differ, it decides."""
    fence: int = 0
    """Fencing token of the lease under which the record was last claimed."""
    started_at: float = 0.0
    expires_at: float = 0.0
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
    places: Places = ()
    """What is remembered of each zone's capacity."""
    outcome: str = ""
    reason: str = ""
    disks: tuple[Span, ...] = ()
    """When VMs existed, running or stopped: their disks are billed."""
    starts: tuple[float, ...] = ()
    """When `up` started the deployment, or opened it again."""


def lives(record: Record, ended: float) -> tuple[tuple[float, float], ...]:
    """
    Return (start, end) of each time that the deployment was up: from `up` to the end of its last TPU.

    The newest one lasts until *ended*. A record of an earlier version, without starts, has one.
    """
    nodes = [span for span in record.spans if span.kind is Kind.NODE]
    first = record.started_at or min((span.since for span in nodes), default=0.0)
    starts = record.starts or ((first,) if first else ())
    found = []
    for start, following in zip(starts, (*starts[1:], None), strict=True):
        if following is None:
            found.append((start, max(start, ended)))
            continue
        mine = [min(s.until or following, following) for s in nodes if start <= s.since < following]
        found.append((start, max(mine, default=start)))
    return tuple(found)


def first_incarnations(record: Record) -> frozenset[int]:
    """Return the numbers of the TPUs with which `up` began the deployment, or opened it again."""
    nodes = [
        (span.since, incarnation_of(span.name, {}) or 0) for span in record.spans if span.kind is Kind.NODE
    ]
    firsts = (
        min((number for since, number in nodes if since >= start), default=0) for start in record.starts
    )
    return frozenset(firsts) - {0}


def current_node(world: World, record: Record) -> Node | None:
    """Return the node of the newest incarnation, if it is in sight."""
    return next((n for n in world.known_nodes if n.incarnation == record.node.incarnation), None)


def newest_incarnation(record: Record) -> int:
    """Return the largest number that a TPU was ever given: the next one gets a larger one."""
    rivals = (r.incarnation for r in record.race.rivals)
    # Over all that is known: a number given twice could take an old TPU's report for the new one's.
    return max(record.node.highest, record.node.incarnation, *rivals, 0)


def last_incarnation(record: Record) -> int:
    """Return the number of the newest TPU that was requested: after `down` the record holds the next one's."""
    if record.node.accepted or record.node.requested_at > 0:
        return record.node.incarnation
    numbers = (incarnation_of(span.name, {}) or 0 for span in record.spans if span.kind is Kind.NODE)
    return max(numbers, default=0)


def unrecorded_nodes(world: World, record: Record) -> tuple[Node, ...]:
    """Return TPUs with a larger number than the record ever gave; an old list may show one that is gone."""
    # A record that knows of no TPU is new or lost: then `learn` takes over what is there.
    if record.node.incarnation == 0:
        return ()
    return tuple(n for n in world.known_nodes if (n.incarnation or 0) > newest_incarnation(record))


def lasted(record: Record, world: World, state: FirstSeen, seconds: float) -> bool:
    """Say whether a doubtful state was seen at least twice, *seconds* apart, without a break."""
    since = record.first_seen.get(state)
    return since is not None and world.observed_at - since >= seconds


def surely_absent(record: Record, world: World, incarnation: int) -> bool:
    """
    Say whether a TPU that was asked for does not exist: two complete lists, half a minute apart, lack it.

    One list may be older than the TPU, and one that failed (Unknown) is no evidence at all.
    """
    return lasted(record, world, of_node(incarnation, Sign.ABSENT), CONFIRMED_AFTER)


def as_absent(record: Record, incarnation: int | None) -> Record:
    """Return the record of a TPU that surely does not exist: its create has failed, or its deletion is done."""
    if incarnation == record.node.incarnation:
        return replace(record, node=replace(record.node, accepted=False, requested_at=0.0))
    rivals = tuple(rival for rival in record.race.rivals if rival.incarnation != incarnation)
    return replace(record, race=replace(record.race, rivals=rivals))


def succeeded(record: Record) -> bool:
    """Say whether successors of the newest TPU were asked for beside it, of which none has been named."""
    return 0 < record.node.incarnation < record.race.round and not record.race.claimed


def race_to_win(record: Record, incarnation: int) -> int:
    """Return the race that a TPU of the record has to win before it begins, 0 for none."""
    # The one beside which its successors were asked for has won its own long ago.
    return record.race.round if incarnation >= record.race.round else 0


def deletion_asked(record: Record, name: str, now: float) -> Record:
    """Return the record with the time of the last request to delete a node."""
    return replace(record, first_seen={**record.first_seen, of_name(name, Sign.DELETION_ASKED): now})


def forgiven(record: Record, kind: Kind) -> Record:
    """Return the record without the refusals of *kind*: what was refused has succeeded."""
    return updated(record, refusals=tuple(r for r in record.refusals if r.kind is not kind))


def finished(world: World) -> bool:
    """
    Say whether every worker of the newest incarnation has reported that it is done, and what it has saved.

    Done without a checkpoint is a claim that nothing proves: no machine is deleted on it.
    """
    beats = world.known_beats
    # A worker's word alone ends nothing: what it has committed is the proof.
    workers = {b.worker for b in beats if b.phase is Phase.DONE and b.committed_step is not None}
    return bool(beats) and workers == set(range(beats[0].workers))
