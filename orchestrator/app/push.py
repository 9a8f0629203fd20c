"""Push new code to a running job without touching its machines."""

from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.deployment.expired import end_expired, remember
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.job_data import check_sources, read_data, say_what_is_sent, send_data
from orchestrator.app.source.wanted import build_artifacts, trained, with_reported_end, with_wanted
from orchestrator.app.status.status import observe_now, watcher_of
from orchestrator.contract.bucket.object_names import BUNDLES
from orchestrator.domain.job_progress import common_step
from orchestrator.domain.lease import PUSH, called
from orchestrator.domain.machines.scopes import narrow
from orchestrator.domain.observation import NodeState, Present, World
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Kind, Outcome, Plan
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import Spec
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.engine.loop.loop import OUTAGE_TIMEOUT
from orchestrator.engine.reconcile.artifacts import agent_file, bundle_file
from orchestrator.errors import AuthError, JobFailedError, UsageError
from orchestrator.planning.decide import decide
from orchestrator.planning.deployment_outcome import more_training
from orchestrator.planning.failing import failing_text
from orchestrator.planning.job import NARROW, NARROW_VM, RECREATE_VM
from orchestrator.planning.job_digest import job_digest, with_digest_of_today

OURS = frozenset({Kind.BUNDLE, Kind.JOB, Kind.SIDECARS})
"""What a push may change: code, job and sidecars, never a machine."""
TIMEOUT = 300.0
"""Seconds for which unreachable machines are retried."""


class LaterError(Exception):
    """Machines must be created or replaced first, which a push never does."""


class EndedError(Exception):
    """The job has ended with the pushed code."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.message)
        self.plan = plan


class PushResult(Enum):
    """The ways in which a push ends."""

    UNCHANGED = "unchanged"
    PLANNED = "planned"
    RUNNING = "running"
    RECORDED = "recorded"
    DONE = "done"


@dataclass(frozen=True)
class Pushed:
    """
    The result of a push: *before* and *bundle* are digests of code, *plan* is its text.

    *failing* says how often in a row the job has failed with what was pushed, and how; "" if it has not. *news* is
    the word for what the job gets.
    """

    name: str
    before: str
    bundle: str
    plan: tuple[str, ...]
    result: PushResult
    news: str
    failing: str = ""


@dataclass(frozen=True)
class WantedPush:
    """What to push: the digests of code, agent and job settings."""

    bundle: str
    agent: str
    job: str

    def new(self, record: Record) -> bool:
        """Return whether the record wants something else, or machines still lack what it wants."""
        return (self.bundle, self.agent, self.job) != (
            record.job.bundle,
            record.job.agent,
            record.job.settings,
        )


def push(choice: Choice, reporter: Reporter, *, dry_run: bool = False) -> Pushed:
    """Install code and settings on the machines, which restart the job; *dry_run* only returns the plan."""
    session = Session(choice, reporter)
    end_expired(session)
    _must_run(session)
    before = session.records.current.job.bundle
    had_settings = with_digest_of_today(session.spec, session.records.current).job.settings
    sets = read_data(session.path, session.spec, choice.cloud, reporter)
    say_what_is_sent(session, sets)
    check_sources(session)
    wanted = WantedPush(*build_artifacts(session, sets), job_digest(session.spec))
    plan, world = _plan(session, wanted)
    # A push that was killed has recorded its code, which the machines may lack still.
    only_settings = wanted.bundle == before and wanted.job != had_settings
    failing, news = "", "settings" if only_settings else "code"
    if not plan or dry_run:
        result = PushResult.PLANNED if plan else PushResult.UNCHANGED
    else:
        for line in plan:
            reporter.say(f"~ {line}")
        with reporter:
            send_data(session, sets)
        # At once: each of these may take many seconds, in which nothing else is printed.
        watcher = watcher_of(session, world)
        if watcher is not None and watcher.alive:
            often = f"it looks every {session.spec.watch.poll}"
            reporter.say(f"waiting: {called(watcher.command)} lets the push go first ({often})")
            reporter.now(f"waiting for {called(watcher.command)}")
        # The data was sent before taking the lease, since an upload of hours must not stop the watch.
        with (
            leaving("the job may run the old code or the new", "tpuctl push"),
            reporter,
            session.holding_lease(PUSH),
        ):
            # Checked again under the lease, as the job may have ended during the upload.
            _must_run(session)
            remember(session)
            if _has_ready(world):
                reporter.say(f"waiting: the job is asked to stop, may save, and starts with the new {news}")
            result, failing = _push(session, wanted)
        if watcher is not None and watcher.alive:
            # The loop on the VM has ended for the push; cron starts it, once a minute.
            soon = "minute" if watcher.on == "vm" else "few seconds"
            reporter.say(f"{called(watcher.command)} goes on within a {soon}")
    return Pushed(session.spec.name, before, wanted.bundle, tuple(plan), result, news, failing)


def _must_run(session: Session) -> None:
    """Raise UsageError if no job can take new code."""
    spec, record, store = session.spec, session.records.current, session.cloud.store
    # From the reports too: without a watcher the end of the job is not in the record.
    over = with_reported_end(spec, read_heartbeats(store, record.node.incarnation), record)
    # Whatever the code is: with this target, `up` has nothing to train.
    if over.outcome is Outcome.DONE and (reached := trained(spec, store, over, "")):
        raise _refused(f"the job of deployment {spec.name} is done ({reached})", hint=more_training(reached))
    if not record.job.bundle:
        raise _refused(f"{spec.name} is not up")
    if over.outcome:
        raise _refused(f"the job of deployment {spec.name} has finished ({over.outcome.phrase})")


def _refused(message: str, hint: str = "run: tpuctl up") -> UsageError:
    return UsageError(
        f"{message}: there is nothing to push to", hint=hint, changed="nothing was changed", code="TPU-130"
    )


def _plan(session: Session, wanted: WantedPush) -> tuple[list[str], World]:
    """Return the text of a push, [] if all machines have what is wanted, and the world. Raise UsageError."""
    now = observe_now(session)
    # The next pass ends the deployment and would delete the machines that take the code.
    if now.plan.outcome is not None:
        limit = now.plan.limit_reached
        more = f"raise {limit}, then " if limit else ""
        raise _refused(f"{session.spec.name} has ended ({now.plan.message})", f"{more}run: tpuctl up")
    _can_take(session.spec, now.world, now.record)
    before = with_digest_of_today(session.spec, now.record)
    record = with_wanted(before, wanted.bundle, wanted.agent, wanted.job, now.world.observed_at)
    changes = decide(session.spec, now.world, record, now.upper_usd).changes
    if not wanted.new(before) and not any(c.kind is Kind.JOB for c in changes):
        return [], now.world
    lines = []
    if wanted.bundle != now.record.job.bundle:
        lines.append(f"code {now.record.job.bundle[:12]} becomes {wanted.bundle[:12]}")
    if wanted.agent != now.record.job.agent:
        lines.append("the agent becomes the one of this tpuctl")
    if wanted.job != before.job.settings:
        lines.append("the settings of the job change")
    return [*lines, _restart(now.world)], now.world


def _can_take(spec: Spec, world: World, record: Record) -> None:
    """Raise AuthError if the job cannot start with these settings on the present machines."""
    node = current_node(world, record)
    message, next_step = "", ""
    if node is not None and narrow(spec, "tpu", node.scopes):
        message, next_step = (
            NARROW,
            "`tpuctl up` replaces the TPU; the job resumes from its newest checkpoint",
        )
    elif isinstance(world.vm, Present) and narrow(spec, "vm", world.vm.value.scopes):
        message, next_step = NARROW_VM, RECREATE_VM
    if message:
        # Before anything is stopped, because the running job could not be started again.
        raise AuthError(
            f"new machines are needed: {message}", hint=next_step, changed="nothing was changed; the job runs on",
            code="TPU-252",
        )  # fmt: skip


def _restart(world: World) -> str:
    """Return a sentence on whether the job restarts, and from which checkpoint."""
    if not _has_ready(world):
        return "job: no TPU is READY; the next one takes it"
    heartbeats = world.known_heartbeats
    saved = common_step(heartbeats)
    where = f" on {len(heartbeats)} machines" if len(heartbeats) > 1 else ""
    if saved is None:
        return (
            f"job: starts again{where}, from what it saves when it is stopped; no checkpoint is complete yet"
        )
    return f"job: starts again{where} from its newest checkpoint (step {saved} or later)"


def _push(session: Session, wanted: WantedPush) -> tuple[PushResult, str]:
    """
    Upload the code, record that it is wanted, restart the job; return the result, and how the job fails by then.

    The next pass completes a killed push.
    """
    # Upload before recording: a machine that boots in between must find what the record names.
    for path in (agent_file(session.bundles, wanted.agent), bundle_file(session.bundles, wanted.bundle)):
        session.cloud.store.upload(f"{BUNDLES}{path.name}", path)
    mark = f"{wanted.bundle}:{wanted.agent}"
    now = session.clock.now()
    # A user asks for it, so the loop's pause between two pushes does not apply.
    known = with_digest_of_today
    session.records.update_later(lambda record: _delivered(known(session.spec, record), wanted, mark, now))
    loop = session.loop(_only_ours, outage_timeout=OUTAGE_TIMEOUT)
    end = session.clock.monotonic() + TIMEOUT

    def after(result: Pass) -> None:
        session.sink.flush()
        for failure in result.failures:
            if session.clock.monotonic() >= end:
                # The record already names the new code, so giving up here loses nothing.
                failure.error.explain(
                    changed="the new code is recorded and in the bucket; the next watch brings it"
                )
                raise failure.error
            session.reporter.failure(failure, session.clock.now())
        session.reporter.waiting(result.plan.waits, session.clock.now())

    try:
        result = loop.run(_settled, after)
    except LaterError:
        session.records.flush()
        return PushResult.RECORDED, ""
    except EndedError as end_of_job:
        session.records.flush()
        if end_of_job.plan.outcome is Outcome.DONE:
            return PushResult.DONE, ""
        raise JobFailedError(
            f"the job ended with what was pushed: {end_of_job.plan.message}",
            hint="see `tpuctl logs`, fix it, then run `tpuctl up`",
            changed="what was pushed is recorded; the machines are there until `tpuctl watch` ends it",
        ) from None
    if not result.plan.settled:
        return PushResult.RECORDED, ""
    return PushResult.RUNNING, failing_text(result.world.known_heartbeats, session.spec.job.failures)


def _delivered(record: Record, wanted: WantedPush, mark: str, now: float) -> Record:
    """Return the record with new code in the bucket, and without a pause before the next try over SSH."""
    record = with_wanted(record, wanted.bundle, wanted.agent, wanted.job, now)
    job, ssh = replace(record.job, uploaded=mark), replace(record.ssh, next_try_at=0.0)
    return replace(record, job=job, ssh=ssh)


def _only_ours(plan: Plan) -> None:
    # The plan ends the deployment: its deletions must not count as machines to replace first.
    if plan.outcome is not None:
        raise EndedError(plan)
    # Before the plan is applied, since a push never replaces or deletes a machine.
    if any(change.kind not in OURS for change in plan.changes):
        raise LaterError


def _settled(result: Pass) -> bool:
    """Return whether the job runs, or nothing can be done for it before its TPU exists."""
    return result.plan.settled or (result.plan.empty and not _has_ready(result.world))


def _has_ready(world: World) -> bool:
    return any(node.state is NodeState.READY for node in world.known_nodes)
