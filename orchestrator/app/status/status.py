"""Determine what exists and how far the job is, from the watcher's publication or from the cloud."""

from dataclasses import dataclass, replace

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import last_cost, open_named
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.holder import process_ended
from orchestrator.app.this_computer.quick_status import aged_status, keep_mark
from orchestrator.domain import names
from orchestrator.domain.job_progress import common_step, seconds_remaining
from orchestrator.domain.lease import EXPIRES_AFTER, LOOP, Holder
from orchestrator.domain.machines.maintenance import maintenance_text
from orchestrator.domain.observation import Present, Unknown, VmState, World
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.record import Record, last_incarnation, unused_incarnations
from orchestrator.domain.status import (
    FROM_CLOUD,
    DeploymentState,
    DeploymentStatus,
    ResourceStatus,
    SavesStatus,
    SidecarStatus,
    WatcherStatus,
    WorkerStatus,
)
from orchestrator.domain.text.hints import FIX_CAUSE
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.lease.lease_release import current
from orchestrator.engine.publish.paused import paused_here
from orchestrator.engine.publish.published_status import PublishedStatus, published_here
from orchestrator.engine.publish.publisher import published_in_bucket
from orchestrator.engine.reconcile.observe import observe
from orchestrator.errors import TpuctlError
from orchestrator.planning.decide import decide
from orchestrator.planning.deployment_state import deployment_state
from orchestrator.planning.events import preemption, with_preemption
from orchestrator.planning.failing import failing_text
from orchestrator.planning.ignored import ignored_text
from orchestrator.planning.safety_nets import safety_nets
from orchestrator.planning.save_interval import SaveInterval, reported_interval
from orchestrator.planning.sidecars import sidecars
from orchestrator.planning.tpu.next_zone import refusal_to_cure
from orchestrator.planning.tpu.on_demand import deadline_status
from orchestrator.planning.tpu.queued_tpu import state_text
from orchestrator.planning.uncommitted import rescued_text, uncommitted_text
from orchestrator.planning.update_record import update_record


@dataclass(frozen=True)
class JudgedDeployment:
    """
    The observation of a deployment at one moment, and what a pass would do about it.

    *usd* is the cost so far; *upper_usd* is that at the highest prices, by which a budget ends.
    """

    world: World
    record: Record
    usd: float
    upper_usd: float
    plan: Plan


def observe_now(session: Session) -> JudgedDeployment:
    """Observe once, as a pass does, and change nothing."""
    record, bucket = session.records.current, session.blueprint.bucket
    return judged(session, observe(session.cloud, session.spec, record, bucket, session.clock.now()))


def judged(session: Session, world: World) -> JudgedDeployment:
    """Return *world* with its cost and what a pass would do about it."""
    before, spec = session.records.current, session.spec
    record = update_record(before, world)
    # As the pass that first observes it will count it: until then the record has a preemption less than the list.
    record = with_preemption(record) if preemption(spec, before, record, world) else record
    usd, most = session.costs(record, world.observed_at)
    return JudgedDeployment(world, record, usd, most, decide(spec, world, record, most))


def open_for_status(choice: Choice, name: str | None, reporter: Reporter) -> Session:
    """Open a deployment to observe it, after ending expired ones."""
    session = open_named(choice, name, reporter, "show", only_observes=True)
    if not name and not choice.settings:
        keep_mark(choice.cloud, session.spec.project, session.path, session.folder)
    end_expired(session)
    return session


def newest(session: Session, *, fresh: bool = False) -> DeploymentStatus:
    """Return the status published by the watcher, else that from the cloud; *fresh* asks the cloud."""
    # A published status costs one read; the cloud costs a call for each zone and resource.
    found = None if fresh else find_published(session)
    if found is not None:
        return aged_status(found)
    session.records.load()
    return status_now(session)


def find_published(session: Session) -> PublishedStatus | None:
    """Return the newest status of a loop here, else of one elsewhere; None without a loop."""
    found = published_here(session.folder, session.clock.now(), process_ended)
    if found is not None:
        return found
    try:
        return published_in_bucket(session.store, session.clock.now(), process_ended, session.key)
    except TpuctlError:
        return None  # Ask the cloud next, which reports the error.


def status_now(session: Session) -> DeploymentStatus:
    """Return the status from the cloud."""
    found = observe_now(session)
    return status_of(session, found, watcher_of(session, found.world))


def state_of(session: Session, found: JudgedDeployment, watcher: WatcherStatus | None) -> DeploymentState:
    """Return the state of the deployment for one observation."""
    deleted = last_cost(session, found.record) is not None
    watched = carries_out(watcher, found.world)
    return deployment_state(
        session.spec, found.world, found.record, found.plan, watched=watched, deleted=deleted
    )


def carries_out(watcher: WatcherStatus | None, world: World) -> bool:
    """Return whether *watcher* makes the next pass; the loop on a VM that does not run makes none."""
    if watcher is None or not watcher.alive:
        return False
    stopped = isinstance(world.vm, Present) and world.vm.value.state is not VmState.RUNNING
    return watcher.on != "vm" or not stopped


def status_of(session: Session, found: JudgedDeployment, watcher: WatcherStatus | None) -> DeploymentStatus:
    """Return the status for one observation."""
    world, record, plan, spec = found.world, found.record, found.plan, session.spec
    changes = tuple(
        f"{' '.join(filter(None, (c.verb.name.lower(), c.kind.title, c.name)))}: {c.message}"
        for c in plan.changes
    )
    waits = () if changes else tuple(wait.later(0.0) for wait in plan.waits)
    goes_on = bool(record.started_at) and plan.outcome is None
    watched = watcher is not None and watcher.alive
    poll = float(spec.watch.poll)
    heartbeats, cost = world.known_heartbeats, last_cost(session, record)
    state = state_of(session, found, watcher)
    return DeploymentStatus(
        name=spec.name,
        project=session.project,
        state=state,
        outcome=plan.outcome.value if plan.outcome else None,
        limit_reached=plan.limit_reached,
        message=plan.message,
        uncommitted_message=uncommitted_text(spec.job.checkpoint, heartbeats),
        ignored_message=ignored_text(heartbeats),
        # What a machine that is gone reported last is no failure of the next one.
        refusal_hint=_refusal_hint(state, record),
        failing_message="" if state.without_tpu else failing_text(heartbeats, spec.job.failures),
        aside_message=next((b.aside_message for b in heartbeats if b.aside_message), ""),
        rescued_message=rescued_text(heartbeats),
        incarnation=last_incarnation(record),
        unused_incarnations=unused_incarnations(record),
        preemptions=record.node.preemptions,
        up=bool(record.job.bundle),
        deleted_at=cost.deleted_at if cost else None,
        usd=round(cost.breakdown.usd if cost else found.usd, 4),
        upper_usd=round(cost.breakdown.upper_usd if cost else found.upper_usd, 4),
        unpriced=tuple(cost.breakdown.unpriced if cost else session.unpriced(record, world.observed_at)),
        resources=_resources(session, world, record),
        workers=_workers(world),
        checkpoint_step=common_step(heartbeats) or _step_in_bucket(session, found),
        resumes_from=_resumes_from(state, found),
        watcher=watcher,
        watch_on_vm=spec.watch.on_vm,
        safety_nets=safety_nets(spec, record.started_at) if record.started_at else (),
        next_changes=changes,
        waits_for=waits,
        next_pass_in_s=min(poll, poll if plan.wake_in is None else plan.wake_in) if watched else None,
        watch_poll_s=poll,
        target_steps=spec.job.target_steps,
        # The rate of a machine that is gone promises nothing.
        eta_s=None if state.without_tpu else _eta(world, spec.job.target_steps),
        budget_usd=spec.watch.budget_usd,
        deadline=deadline_status(spec, world, record),
        saves=_saves(reported_interval(heartbeats)),
        ttl_remaining_s=_age(record.started_at + spec.watch.ttl, world.observed_at) if goes_on else None,
        sidecars=tuple(SidecarStatus(name=s.name, on=s.on, port=s.port) for s in sidecars(spec, "")),
        source=FROM_CLOUD,
    )


def _refusal_hint(state: DeploymentState, record: Record) -> str:
    """Return what cures a refusal for which the job has no TPU, "" if waiting does."""
    waits = state.without_tpu or state in {DeploymentState.STARTING, DeploymentState.RESUMING}
    found = refusal_to_cure(record) if waits else None
    return (found.hint or FIX_CAUSE) if found else ""


def _resumes_from(state: DeploymentState, found: JudgedDeployment) -> int | None:
    """Return the step from which a job without a running TPU goes on, None if it runs or nothing is saved."""
    if not (state.without_tpu or state is DeploymentState.RESUMING):
        return None
    return common_step(found.world.known_heartbeats) or found.record.deadline.progress.step or None


def _step_in_bucket(session: Session, found: JudgedDeployment) -> int | None:
    """Return the newest step in the bucket of a deployment that is down or over, None if it goes on or has none."""
    goes_on = found.record.job.bundle and found.record.outcome is None
    if goes_on or not isinstance(found.world.bucket, Present):
        return None
    known = found.record.deadline.progress.step or None
    try:
        # The bucket itself: the last save may be later than the last report that anyone has read.
        saved = read_checkpoints(session.store, session.spec.job.checkpoint)
    except TpuctlError:
        return known
    return max((one.step for one in saved if one.complete), default=known)


def _saves(found: SaveInterval | None) -> SavesStatus | None:
    if found is None:
        return None
    return SavesStatus(
        save_interval_s=found.seconds, save_pause_s=found.save_pause, save_pause_from=found.save_pause_from,
        time_between_interruptions_s=found.time_between_interruptions,
        observed_save_interval_s=found.observed, message=found.text,
    )  # fmt: skip


def _resources(session: Session, world: World, record: Record) -> tuple[ResourceStatus, ...]:
    rows = []

    def add(kind: Kind, name: str, zone: str, state: str) -> None:
        rows.append(ResourceStatus(kind=kind.word, name=name, zone=zone, state=state))

    def word(observed: object) -> str:
        return f"unknown: {observed.message}" if isinstance(observed, Unknown) else "absent"

    bucket = world.bucket
    place = bucket.value.location if isinstance(bucket, Present) else ""
    add(Kind.BUCKET, session.blueprint.bucket, place, "present" if place else word(bucket))
    if session.spec.vm != "none":
        vm = world.vm
        zone = names.vm_zone(session.spec)
        add(
            Kind.VM,
            names.vm_name(session.spec),
            zone,
            vm.value.state.value if isinstance(vm, Present) else word(vm),
        )
    if not isinstance(world.nodes, Present):
        add(Kind.NODE, "?", "", word(world.nodes))
    elif not world.nodes.value:
        add(Kind.NODE, "-", "", "absent")
    else:
        for node in world.nodes.value:
            notice = maintenance_text(node.maintenance)
            health = ("" if node.healthy else f" ({node.health})") + (f" ({notice})" if notice else "")
            newest = node.incarnation == record.node.incarnation
            other = newest and record.node.type not in {"", session.spec.tpu.type}
            kind = f" ({record.node.type})" if other else ""
            add(Kind.NODE, node.name, node.zone, state_text(node) + health + kind)
    return tuple(rows)


def watcher_of(session: Session, world: World) -> WatcherStatus | None:
    """Return the status of the watcher, the holder of the lease or one that a push has paused; None without one."""
    # If the bucket could not be read, reading the lease would fail too.
    found = current(session.cloud.store) if isinstance(world.bucket, Present) else None
    holder = None if found is None else Holder.from_json(found.data)
    if found is None or holder is None or process_ended(holder):
        # After a push the lease is free for some seconds, until the loop that it has paused takes it again. One
        # whose process has ended is free too: a command that wants it takes it over.
        now = session.clock.now()
        paused = paused_here(session.folder, now, process_ended)
        return None if paused is None else watcher_status(paused, now - paused.since)
    status = watcher_status(holder, _age(world.observed_at, found.updated) or 0.0)
    published = published_here(session.folder, session.clock.now(), process_ended)
    # It may publish a pass between two renewals; only a renewal shows that it still holds the lease.
    ages = (status.renewed_age_s, *(() if published is None else (published.age,)))
    return replace(status, renewed_age_s=min(ages))


def watcher_status(holder: Holder, age: float) -> WatcherStatus:
    """Return a lease *holder* that renewed *age* seconds ago."""
    return WatcherStatus(
        # From the lease object itself; an unreadable one names no command and so is never "vm".
        on="vm" if holder.command == LOOP else "elsewhere",
        who=holder.who,
        command=holder.command,
        since=holder.since,
        renewed_age_s=age,
        alive=age < EXPIRES_AFTER,
    )


def _workers(world: World) -> tuple[WorkerStatus, ...]:
    heartbeats = (
        (*world.heartbeats.value, *world.boot_heartbeats) if isinstance(world.heartbeats, Present) else ()
    )
    return tuple(
        WorkerStatus(
            worker=b.worker,
            phase=b.phase.value,
            step=b.step,
            loss=b.loss,
            loss_step=b.loss_step,
            steps_per_second=None if b.rate is None else round(b.rate, 4),
            reported_target_steps=b.reported_target_steps,
            progress_from=b.progress_from,
            checkpoint_step=b.committed_step,
            checkpoint_counted=b.committed_counted,
            saved_in_attempt=bool(b.committed_steps),
            format=b.format,
            checkpoint_age_s=_age(world.observed_at, b.committed_at),
            heartbeat_age_s=_age(world.observed_at, b.updated),
            attempts=b.attempts,
            image=b.image,
            xla_programs_restored=b.xla_programs_restored,
            xla_programs_compiled=b.xla_programs_compiled,
            message=b.message,
        )
        for b in sorted(heartbeats, key=lambda b: b.worker)
    )


def _eta(world: World, target: int | None) -> float | None:
    """Return the seconds until the job's last step at its current rate, None if unknown."""
    heartbeats = world.known_heartbeats
    seconds = seconds_remaining(heartbeats, target)
    return None if seconds is None else round(seconds, 1)


def _age(now: float, then: float | None) -> float | None:
    """Return the age in seconds, at least 0, since clocks of two machines may differ slightly."""
    return None if then is None else round(max(0.0, now - then), 1)
