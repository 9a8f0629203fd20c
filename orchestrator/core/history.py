"""
What tpuctl remembers of a deployment between two passes, and how it learns from what it sees.

The history is the deployment record: it is saved before each create, so a killed controller finds
out which incarnation it had asked for. Every function here is pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.core.billed import billed_since
from orchestrator.core.plan import Kind
from orchestrator.core.world import (
    Absent,
    Node,
    NodeState,
    Operation,
    OperationResult,
    Phase,
    Present,
    VmState,
    World,
)
from orchestrator.errors import Retry

LATEST_TRY = 60.0
"""Seconds after the last try over SSH after which its failures are too old to count, and longest pause."""
FORGIVEN = 3600.0
"""Seconds after which a refusal counts no more: what was refused then is asked for again."""
TERMINAL = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED})


@dataclass(frozen=True)
class Refusal:
    """
    Remember a create or start that the cloud refused. *at* is in seconds since the epoch.
    """

    at: float
    zone: str
    retry: Retry
    message: str = ""
    kind: Kind = Kind.NODE
    hint: str = ""


@dataclass(frozen=True)
class Span:
    """
    Remember from when to when a resource existed, for the bill; *until* is None while it does.
    """

    kind: str
    name: str
    zone: str
    since: float
    until: float | None = None


@dataclass(frozen=True)
class History:
    """
    Hold the record of a deployment. Times are seconds since the epoch.

    *fence* is the token of the lease under which it was last claimed, *expires_at* when TPUs may delete
    themselves (0: never). *incarnation* is the newest one asked for (0: none yet), *accepted* says that the
    cloud took its create; *requested_at* is 0 when that node surely does not exist: its create has failed,
    or its deletion is done. *refusals* are those since the last success of their kind. *sightings* maps a
    doubtful state to the time it was first seen in a row. *bucket_ready* says that its grant is made too.
    *job* is the digest of the job's settings that `up` wants, *settings_due* says that machines have others,
    *pushed* names the bundle that went there over SSH, *sidecars* has digests of their settings by machine.
    *shape* is the TPU that `up` wants, *unwanted* the incarnation that was asked for with another one.
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
    outcome: str = ""
    reason: str = ""


def current_node(world: World, history: History) -> Node | None:
    """
    Return the node of the newest incarnation, if it is in sight.
    """
    if not isinstance(world.nodes, Present):
        return None
    return next((n for n in world.nodes.value if n.incarnation == history.incarnation), None)


def lasted(history: History, world: World, key: str, seconds: float) -> bool:
    """
    Say whether a doubtful state was seen at least twice, *seconds* apart, without a break.
    """
    since = history.sightings.get(key)
    return since is not None and world.seen_at - since >= seconds


def deletion_key(name: str) -> str:
    """
    Return the key of the sighting that says since when a node is being deleted, by its last request.
    """
    return f"deleting:{name}"


def learn(history: History, world: World) -> History:
    """
    Return the history with what *world* adds to it.
    """
    now = world.seen_at
    history = _adopt(_up_to(history, now), world)
    for result in world.operations:
        history = _learn_operation(history, result, now)
    history = _learn_success(history, world)
    history = replace(history, spans=_spans(history, world, now))
    return replace(history, sightings=_sightings(history, world, now))


def _up_to(history: History, now: float) -> History:
    """
    Return the history with no time after *now* and no old refusal.

    A clock that was wrong must not make us wait for hours, nor a quota that was used up end us for ever.
    """
    return replace(
        history,
        started_at=min(history.started_at, now),
        requested_at=min(history.requested_at, now),
        next_remote_at=min(history.next_remote_at, now + LATEST_TRY),
        remote_failed_since=None
        if history.remote_failed_since is None
        else min(history.remote_failed_since, now),
        refusals=tuple(replace(r, at=min(r.at, now)) for r in history.refusals if now - r.at < FORGIVEN),
        sightings={key: min(since, now) for key, since in history.sightings.items()},
        operations=tuple(replace(o, started_at=min(o.started_at, now)) for o in history.operations),
    )


def _adopt(history: History, world: World) -> History:
    """
    Take over what carries our label though the record does not know it.
    """
    if isinstance(world.bucket, Present):
        history = replace(history, bucket_seen=True)
    if isinstance(world.vm, Present):
        history = replace(history, vm_accepted=True)
    if not isinstance(world.nodes, Present):
        return history
    newest = max(
        (n for n in world.nodes.value if n.incarnation), key=lambda n: n.incarnation or 0, default=None
    )
    if newest is None or (newest.incarnation or 0) < history.incarnation:
        return history
    zones = history.zones_used if newest.zone in history.zones_used else (*history.zones_used, newest.zone)
    fresh = newest.incarnation != history.incarnation
    return replace(
        history,
        incarnation=newest.incarnation or 0,
        zone=newest.zone,
        accepted=True,
        zones_used=zones,
        requested_at=newest.created_at if fresh else history.requested_at,
    )


def _learn_operation(history: History, result: OperationResult, now: float) -> History:
    if not result.done:
        return history
    operations = tuple(o for o in history.operations if o.id != result.operation.id)
    history = replace(history, operations=operations)
    failed = result.retry is not None
    done = result.operation
    if failed and done.kind == "vm" and done.verb in {"create", "start"}:
        accepted = history.vm_accepted and done.verb == "start"
        return replace(history, vm_accepted=accepted, refusals=_refused(history, result, now))
    if failed and done.kind == "node" and done.verb == "create" and done.incarnation == history.incarnation:
        refusals = _refused(history, result, now)
        return replace(history, accepted=False, requested_at=0.0, refusals=refusals)
    if not failed and (done.kind, done.verb, done.incarnation) == ("node", "delete", history.incarnation):
        return replace(history, accepted=False, requested_at=0.0)
    return history


def _refused(history: History, result: OperationResult, now: float) -> tuple[Refusal, ...]:
    operation = result.operation
    kind, text = Kind(operation.kind), f"{result.code} {result.message}".strip()
    return (*history.refusals, Refusal(now, operation.zone, result.retry or Retry.UNKNOWN, text, kind))


def forgiven(history: History, kind: Kind) -> History:
    """
    Return the history without the refusals of *kind*: what was refused has succeeded.
    """
    return replace(history, refusals=tuple(r for r in history.refusals if r.kind is not kind))


def _learn_success(history: History, world: World) -> History:
    node, vm = current_node(world, history), world.vm
    if node is not None and node.state is NodeState.READY:
        history = forgiven(history, Kind.NODE)
    if isinstance(vm, Present) and vm.value.state is VmState.RUNNING:
        history = forgiven(history, Kind.VM)
    return history


def _sightings(history: History, world: World, now: float) -> dict[str, float]:
    """
    Return the doubtful states seen now, each with the time it was first seen without a break.

    On Unknown the old sightings stay: not seeing is no evidence for either side. Only the absence of a node
    has to be seen anew: it is believed after two complete lists in a row.
    """
    seen: set[str] = set()
    kept: set[str] = set()
    if isinstance(world.vm, Absent):
        seen.add("vm:absent")
    elif not isinstance(world.vm, Present):
        kept.add("vm:absent")
    if isinstance(world.bucket, Absent):
        seen.add("bucket:absent")
    elif not isinstance(world.bucket, Present):
        kept.add("bucket:absent")
    if isinstance(world.nodes, Present):
        seen |= _node_doubts(current_node(world, history), history)
        seen |= {deletion_key(n.name) for n in world.nodes.value if n.state is NodeState.DELETING}
        kept |= {deletion_key(n.name) for n in world.nodes.value}
    else:
        doubts = (key for key in history.sightings if key.startswith(("node:", "deleting:")))
        kept |= {key for key in doubts if not key.endswith(":absent")}
    return {key: history.sightings.get(key, now) for key in seen | (kept & set(history.sightings))}


def _node_doubts(node: Node | None, history: History) -> set[str]:
    key = f"node:{history.incarnation}"
    if node is None:
        return {f"{key}:absent"}
    doubts = {f"{key}:{node.state.name.lower()}"}
    if not node.healthy:
        doubts.add(f"{key}:unhealthy")
    return doubts


def _spans(history: History, world: World, now: float) -> tuple[Span, ...]:
    """
    Open a span for what is billed now and close those of what is surely not.
    """
    live: dict[tuple[str, str], Span] = {}
    sure = {"vm"} if isinstance(world.vm, Present | Absent) else set()
    if isinstance(world.nodes, Present):
        sure.add("node")
        billed = (
            n for n in world.nodes.value if n.state not in TERMINAL and n.state is not NodeState.CREATING
        )
        nodes = [Span("node", n.name, n.zone, billed_since(n, history, now)) for n in billed]
        live |= {("node", node.name): node for node in nodes}
    if isinstance(world.vm, Present) and world.vm.value.state is not VmState.TERMINATED:
        vm = world.vm.value
        live[("vm", vm.name)] = Span("vm", vm.name, vm.zone, now)
    spans = tuple(
        replace(s, until=now) if s.until is None and s.kind in sure and (s.kind, s.name) not in live else s
        for s in history.spans
    )
    open_now = {(s.kind, s.name) for s in spans if s.until is None}
    return (*spans, *(span for key, span in live.items() if key not in open_now))


def finished(world: World) -> bool:
    """
    Say whether every worker of the newest incarnation has reported that it is done.
    """
    if not isinstance(world.heartbeats, Present) or not world.heartbeats.value:
        return False
    beats = world.heartbeats.value
    workers = {b.worker for b in beats if b.phase is Phase.DONE}
    return workers == set(range(beats[0].workers))
