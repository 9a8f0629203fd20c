"""Decide about the job, observed through the heartbeats of its workers."""

from dataclasses import dataclass
from enum import Enum

from orchestrator.contract.backoff import growing
from orchestrator.contract.heartbeat_pause import heartbeat_pause
from orchestrator.contract.phase import ENDS, Phase
from orchestrator.domain.bucket_grants import settling
from orchestrator.domain.first_seen import Condition, FirstSeen, of_attempt, of_node
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.scopes import narrow
from orchestrator.domain.observation import Node, NodeState, Present, Unknown, VmState, World
from orchestrator.domain.plan import Change, Decision, Kind, LoopRule, Verb
from orchestrator.domain.record import LATEST_TRY, TERMINAL, Record, current_node, lasted
from orchestrator.domain.spec import Spec
from orchestrator.domain.wait import Wait

OTHER_CODE_AFTER = 30.0
"""Seconds for which a machine may report other code than was sent to it: it is being restarted."""
OVER = frozenset(ENDS)
"""Final phases: a worker that has reported one need not report any more."""
BOOT_GRACE = 120.0
"""Seconds that a READY machine may be silent before it is checked over SSH."""
POLL_SOON = 2.0
"""Shortest time between two checks of machines that start, in seconds."""
FIRST_STEPS = 60.0
"""Seconds from a job's start in which its steps are looked for at each heartbeat, since a person waits."""
WEDGED = 900.0
"""Seconds of silence after which a worker that answers over SSH is restarted instead of only started."""
SILENCE = 4
"""Missed heartbeats in a row after which a worker counts as silent."""
AFTER_PUSH = 30.0
"""Seconds that machines have for a report after code was sent to them; an earlier one says nothing of it."""
REACH = 6
"""Heartbeat intervals for which SSH to a silent worker may fail before its node is replaced."""

NARROW = "the job reads secrets, and this TPU was made without the scope cloud-platform"
NARROW_VM = "the job reads secrets, and the VM was made without the scope cloud-platform"
RECREATE_VM = "recreate the VM: `tpuctl down`, then `tpuctl up`"


class Due(Enum):
    """What the machines have to be given."""

    SETTINGS = "settings"
    CODE = "code"

    @property
    def text(self) -> str:
        """Return the sentence about it, without a full stop."""
        if self is Due.SETTINGS:
            return "the machines run the job with other settings"
        return "the machines do not have its code yet"

    @property
    def fact(self) -> str:
        """Return the sentence that is the same in each pass."""
        return self.text


@dataclass(frozen=True)
class SilentWorker:
    """A worker that should report and does not: for how many *seconds*, None if it has never reported."""

    worker: int
    seconds: float | None

    @property
    def text(self) -> str:
        """Return the sentence about it, without a full stop."""
        if self.seconds is None:
            return f"worker {self.worker} has never reported"
        return f"worker {self.worker} has been silent for {self.seconds:.0f} s"

    @property
    def fact(self) -> str:
        """Return the sentence that is the same in each pass: without the seconds."""
        return self.text if self.seconds is None else f"worker {self.worker} is silent"


@dataclass(frozen=True)
class Unreachable:
    """A silent worker whose machine does not answer over SSH either."""

    worker: SilentWorker

    @property
    def text(self) -> str:
        """Return the sentence about it, without a full stop."""
        return f"{self.worker.text} and is out of reach by SSH"


def heartbeat_interval(spec: Spec) -> float:
    """Return the seconds between two heartbeats: two polls, at least 2 and at most 30."""
    # At most 30 s, because a dead machine costs money unnoticed for SILENCE heartbeats.
    return max(2.0, min(30.0, 2 * spec.watch.poll))


def latest_try(spec: Spec) -> float:
    """Return the age in seconds after which a failed SSH try no longer counts: at least two passes."""
    return max(LATEST_TRY, 2 * spec.watch.poll)


def push_mark(record: Record) -> str:
    """
    Return the value of `JobRecord.pushed` when the machines have the wanted code.

    It includes the incarnation: what an earlier TPU had got says nothing of the present one, and a job on the VM
    needs each new TPU's address.
    """
    return f"{record.node.incarnation}:{record.job.bundle}"


def decide_job(spec: Spec, world: World, record: Record) -> Decision:
    """Push and start the job if it does not run, or does not run the wanted code."""
    node = current_node(world, record)
    if node is None or not _of_use(spec, world, node):
        return _blocked("starts when the TPU is READY")
    if not node.workers:
        return Decision(wait=Wait("the TPU is READY but shows no workers yet"), rule=LoopRule.JOB_STARTS)
    vm_runs = isinstance(world.vm, Present) and world.vm.value.state is VmState.RUNNING
    if spec.job.run_on == "vm" and not vm_runs:
        return _blocked("starts when the VM is RUNNING")
    if isinstance(world.vm, Present) and narrow(spec, "vm", world.vm.value.scopes):
        # A restart would stop a working job for one that cannot start there.
        return _blocked(f"{NARROW_VM}; {RECREATE_VM}")
    # Without the bucket, checkpoints of the job would be lost.
    if not isinstance(world.bucket, Present):
        return _blocked("starts when the bucket is there")
    if isinstance(world.heartbeats, Unknown):
        return Decision(wait=Wait(f"not known ({world.heartbeats.message})"), rule=LoopRule.UNKNOWN)
    if not record.job.uploaded:
        return _blocked("its code is not in the bucket yet")
    heartbeats = world.known_heartbeats
    cause = outdated(spec, world, record, node) or silent_worker(spec, world, record, node, heartbeats)
    if cause is None:
        before = {b.worker for b in heartbeats if is_of_before(spec, world, record, b)}
        return _waiting_for(heartbeats, expected_workers(spec, node), world.observed_at, before)
    rule = LoopRule.JOB_PUSH if isinstance(cause, Due) else LoopRule.JOB_SILENT
    # After a failed try over SSH, wait: the heartbeat may arrive first, through the bucket.
    if world.observed_at < record.ssh.next_try_at:
        pause = record.ssh.next_try_at - world.observed_at
        return Decision(wait=Wait(f"{cause.fact}; next try soon"), wake_in=pause, rule=rule)
    # UPDATE restarts a running job, which costs a gang its work since the last checkpoint. So not for the same
    # code, and not for a worker that trains while it cannot reach the bucket.
    incarnation, _, sent = record.job.pushed.rpartition(":")
    other = incarnation == str(record.node.incarnation) and sent != record.job.bundle
    same = not other and all(b.bundle == record.job.bundle or b.phase is Phase.UNKNOWN for b in heartbeats)
    wedged = any(_silence(b, world) > WEDGED for b in heartbeats)
    verb = Verb.CREATE if same and not record.job.settings_due and not wedged else Verb.UPDATE
    change = Change(Kind.JOB, verb, spec.name, cause.text, node.zone, record.node.incarnation)
    # A machine that boots cannot be reached yet, and reports soon: what it is at is to be seen then.
    return Decision(
        (change,), wake_in=None if heartbeats else growing(POLL_SOON, _age(world, record)), rule=rule
    )


def _blocked(message: str) -> Decision:
    return Decision(wait=Wait(message), blocked=True, rule=LoopRule.JOB_WAITS)


def expected_workers(spec: Spec, node: Node) -> int:
    """Return how many machines run the job."""
    return len(node.workers) if spec.job.run_on == "tpu" else 1


def outdated(spec: Spec, world: World, record: Record, node: Node) -> Due | None:
    """Return what the machines have to be given; None if code and settings are up to date."""
    heartbeats = world.known_heartbeats
    if record.job.settings_due:
        return Due.SETTINGS
    if not _has_code(spec, record, node, heartbeats):
        return Due.CODE
    # What was sent while a machine booted can be too late for the agent that its startup script has begun with.
    if lasted(record, world, of_node(record.node.incarnation, Condition.OTHER_CODE), OTHER_CODE_AFTER):
        return Due.CODE
    return None


def later_attempt(world: World, record: Record) -> Heartbeat | None:
    """Return the report of worker 0 of the newest TPU if the job was started again there, else None."""
    reports = (one for one in world.heartbeats_of(record.node.incarnation) if not one.worker)
    return next((one for one in reports if one.attempt > 1), None)


def observed_attempts(world: World, record: Record) -> set[FirstSeen]:
    """Return the newest of the later attempts on the newest TPU; without a report of one, what was seen before."""
    newest = later_attempt(world, record)
    if newest is not None:
        return {of_attempt(newest.incarnation, newest.attempt)}
    mine = f"{record.node.incarnation}."
    return {
        key for key in record.first_seen if key.state is Condition.ATTEMPT and str(key.id).startswith(mine)
    }


def from_zero_since(world: World, record: Record) -> float | None:
    """Return when the job on the newest TPU began without a checkpoint; None if it has one, or does not run."""
    now = world.observed_at
    runs = [b for b in world.heartbeats_of(record.node.incarnation) if b.phase is Phase.RUN]
    if not runs or any(b.resumed_from is not None for b in runs):
        return None
    # By the machine's clock, which may be wrong.
    return min(now, max(record.node.requested_at, min(b.timings.get("spawned", now) for b in runs)))


def is_of_before(spec: Spec, world: World, record: Record, heartbeat: Heartbeat) -> bool:
    """Return whether a report is of the code or settings before those that its machine is given now."""
    node, ssh, now = current_node(world, record), record.ssh, world.observed_at
    if node is None or heartbeat.incarnation != node.incarnation:
        return False
    if ssh.failed_since is not None and now - ssh.failed_since >= REACH * heartbeat_interval(spec):
        # Nothing can be sent to it: what it reports is all that comes.
        return False
    if outdated(spec, world, record, node) is not None:
        return True
    # For a while only, since two clocks are compared.
    sent_at = ssh.next_try_at - AFTER_PUSH
    return ssh.failed_since is None and now < ssh.next_try_at and heartbeat.updated < sent_at


def reports_other_code(world: World, record: Record) -> bool:
    """Return whether a worker is at work with other code than was sent to it over SSH."""
    at_work = (Phase.SETUP, Phase.RESTORE, Phase.RUN)
    others = (b for b in world.known_heartbeats if b.phase in at_work and b.bundle != record.job.bundle)
    sent = bool(record.job.bundle) and record.job.pushed == push_mark(record)
    # An old report says nothing of what was sent after it.
    return sent and any(_silence(heartbeat, world) < OTHER_CODE_AFTER for heartbeat in others)


def _has_code(spec: Spec, record: Record, node: Node, heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Return whether the machines have the wanted code, or get it from the bucket as they boot."""
    if spec.job.run_on == "vm":
        return record.job.pushed == push_mark(record)
    incarnation, _, code = record.job.pushed.rpartition(":")
    if incarnation == str(record.node.incarnation):
        # A report of the wanted code may be from before other code was sent.
        return code == record.job.bundle
    if code == record.job.bundle:
        # An earlier TPU got it over SSH, and perhaps other code was wanted when this one booted.
        return not any(b.bundle not in {"", code} for b in heartbeats)
    holders = {b.worker for b in heartbeats if b.bundle == record.job.bundle}
    return holders >= set(range(expected_workers(spec, node)))


def _age(world: World, record: Record) -> float:
    """Return for how many seconds the TPU has been READY."""
    ready = of_node(record.node.incarnation, NodeState.READY)
    return world.observed_at - record.first_seen.get(ready, world.observed_at)


def silent_worker(
    spec: Spec, world: World, record: Record, node: Node, heartbeats: tuple[Heartbeat, ...]
) -> SilentWorker | None:
    """Return a worker that should report and does not, or None. Machines get BOOT_GRACE for their boot."""
    silent = SILENCE * heartbeat_interval(spec)
    reported = {b.worker: b for b in heartbeats}
    for worker in range(expected_workers(spec, node)):
        heartbeat = reported.get(worker)
        if heartbeat is None and _age(world, record) >= BOOT_GRACE:
            return SilentWorker(worker, None)
        over = heartbeat is None or heartbeat.phase in OVER
        if heartbeat is not None and not over and _silence(heartbeat, world) > silent:
            return SilentWorker(worker, _silence(heartbeat, world))
    return None


def _of_use(spec: Spec, world: World, node: Node) -> bool:
    """Return whether the machines of *node* can run a job."""
    if node.state is NodeState.READY and node.healthy:
        return True
    # While the machines report, a state such as CREATING or unhealthy does not matter.
    gone = node.state in TERMINAL or node.state in {NodeState.DELETING, NodeState.STOPPED}
    return not gone and is_reporting(spec, world, node)


def is_reporting(spec: Spec, world: World, node: Node) -> bool:
    """
    Return whether a machine of *node* reports now: evidence that it is alive, whatever state the API shows.

    A job on the VM reports from there, which proves nothing about the TPU.
    """
    if spec.job.run_on == "vm" or not isinstance(world.heartbeats, Present):
        return False
    fresh = SILENCE * heartbeat_interval(spec)
    heartbeats = (
        b for b in (*world.known_heartbeats, *world.boot_heartbeats) if b.incarnation == node.incarnation
    )
    return any(_silence(b, world) <= fresh for b in heartbeats)


def _silence(heartbeat: Heartbeat, world: World) -> float:
    """Return the seconds since a worker's last heartbeat."""
    return world.observed_at - heartbeat.updated


def out_of_reach(spec: Spec, world: World, record: Record, node: Node) -> Unreachable | None:
    """
    Return the worker by which the machines of a READY node count as lost; None if they do not.

    Two witnesses are needed: a silent worker, and repeated SSH failures up to now. One is not enough, because
    a firewall may block SSH to a machine that works. A worker is not silent while the startup script works,
    nor while its role on the bucket may not be in force yet.
    """
    since = record.ssh.failed_since
    # An old failure proves nothing, because no try has followed it.
    fresh = world.observed_at - record.ssh.next_try_at < latest_try(spec)
    if since is None or not fresh or world.observed_at - since < REACH * heartbeat_interval(spec):
        return None
    if not isinstance(world.heartbeats, Present) or spec.job.run_on == "vm":
        return None
    begins = world.boot_heartbeats or settling(record.bucket.granted_at, world.observed_at)
    if begins and not world.heartbeats.value:
        return None
    silent = silent_worker(spec, world, record, node, world.heartbeats.value)
    return None if silent is None else Unreachable(silent)


def _waiting_for(heartbeats: tuple[Heartbeat, ...], expected: int, now: float, before: set[int]) -> Decision:
    """Return the wait for the workers; the reports of those in *before* are older than what was sent to them."""
    finished = [b.worker for b in heartbeats if b.phase is Phase.DONE and b.committed_step is None]
    if finished:
        message = f"worker {finished[0]} says that it is done and has saved no checkpoint"
        text = f"{message}; its machine is kept: inspect it with `tpuctl ssh`, then `tpuctl push`"
        return Decision(wait=Wait(text), rule=LoopRule.JOB_STARTS)
    running = [
        b
        for b in heartbeats
        if b.phase in OVER | {Phase.RUN, Phase.ENDED, Phase.STOPPING, Phase.STOPPED}
        and b.worker not in before
    ]
    if len(running) >= expected:
        soon = POLL_SOON if _before_first_step(heartbeats, now) else _next_heartbeat(heartbeats, now)
        return Decision(wake_in=soon, rule=LoopRule.JOB_RUNS)
    # A first report may be a second late, because its object has just been written; poll again soon.
    message = next(
        (f"; worker {b.worker}: {_its_state(b)}" for b in heartbeats if b not in running and b.message), ""
    )
    text = (
        f"runs on {len(running)} of {expected} workers{message}" if running else f"not running yet{message}"
    )
    if all(b.message and b.message == b.failure_message for b in heartbeats):
        # Few words: how often and how it failed stands behind them in the live line.
        text = "starts again after a failure"
    text = text if heartbeats else "not running yet; no machine has reported"
    return Decision(wait=Wait(text), wake_in=POLL_SOON if heartbeats else 1.0, rule=LoopRule.JOB_STARTS)


def _its_state(heartbeat: Heartbeat) -> str:
    # Why is in the line of the job, and in the event of the next attempt.
    failed = heartbeat.message == heartbeat.failure_message
    return "the job failed and starts again" if failed else heartbeat.message


def _next_heartbeat(heartbeats: tuple[Heartbeat, ...], now: float) -> float | None:
    """Return the seconds in which a young job reports again; None later, when a poll is soon enough."""
    ages = [now - b.timings.get("spawned", now - FIRST_STEPS) for b in heartbeats if b.phase is Phase.RUN]
    young = [age for age in ages if 0 <= age < FIRST_STEPS]
    return min((heartbeat_pause(age, FIRST_STEPS) for age in young), default=None)


def _before_first_step(heartbeats: tuple[Heartbeat, ...], now: float) -> bool:
    """Return whether a job has just started and has reported no step; after a minute none is waited for."""
    # The newest thing that a machine has timed, since its first report is written just before the program starts.
    begun = [
        max(b.timings.values(), default=0.0) for b in heartbeats if b.phase is Phase.RUN and b.step is None
    ]
    return any(now - FIRST_STEPS < at <= now for at in begun)
