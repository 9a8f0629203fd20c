"""Bring a deployment up: record what is wanted, then run passes until a goal is reached."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.deployment.expired import end_expired, remember
from orchestrator.app.deployment.quota_holders import naming_quota_holders
from orchestrator.app.deployment.session import Session
from orchestrator.app.plan_file import check, open_approved, plan_up
from orchestrator.app.source.job_data import (
    bucket_is_there,
    check_sources,
    first_bucket,
    read_data,
    say_what_is_sent,
    send_data,
    warn_of_work_in_vain,
)
from orchestrator.app.source.local_data import DataSet
from orchestrator.app.source.wanted import RUNS_AGAIN, build_artifacts, record_wanted, runs_again
from orchestrator.app.this_computer.same_project import check_project_and_login
from orchestrator.domain import names
from orchestrator.domain.machines.scopes import narrow
from orchestrator.domain.observation import Absent, Present, VmState
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import MAKING, FailedChange, Kind, Outcome, Plan, Verb
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import DeploymentState
from orchestrator.engine.deployment import Deployment, any_plan
from orchestrator.engine.loop.loop import OUTAGE_TIMEOUT, Loop
from orchestrator.engine.outcome_errors import raise_hopeless, raise_outcome, raise_stockout
from orchestrator.errors import AuthError, HostKeyError, Retry, UsageError
from orchestrator.planning.approval import Approved, refuse_others
from orchestrator.planning.deployment_state import deployment_state, resuming_command
from orchestrator.planning.drift import drift_notes
from orchestrator.planning.failing import failing_text
from orchestrator.planning.fleet.deployments import fleet_of
from orchestrator.planning.job import NARROW_VM, RECREATE_VM
from orchestrator.planning.vm import lacks_named_vm
from orchestrator.pricing.cost import Hourly, Meter
from orchestrator.pricing.cost_so_far import hourly_of, newest_span

STAYS = "what was requested is still being created, and is billed"
UNTOUCHED = "no machine was requested; what exists stays as it is"


class Goal(Enum):
    """What `up` waits for: the job runs on all workers, bucket and VM exist, or a TPU was requested."""

    JOB = "job"
    BUCKET_AND_VM = "bucket and VM"
    TPU_REQUESTED = "TPU requested"

    def reached(self, result: Pass) -> bool:
        """Return whether *result* has reached the goal."""
        plan, vm = result.plan, result.world.vm
        if self is Goal.TPU_REQUESTED:
            return any(change.requests_tpu for change in plan.changes)
        if self is Goal.BUCKET_AND_VM:
            made = isinstance(result.world.bucket, Present)
            runs = isinstance(vm, Absent) or (isinstance(vm, Present) and vm.value.state is VmState.RUNNING)
            return plan.empty and made and runs
        return plan.settled


@dataclass(frozen=True)
class Up:
    """
    The result of `up`: the number of changes, the state, and the outcome if the deployment had already ended.

    *drift* lists differences between machines and file. *on_vm* says that the file wants the loop on the VM.
    *failing* says how often in a row the job has failed by now, and how; "" if it has not.
    """

    name: str
    bucket: str
    changes: int
    state: DeploymentState
    outcome: Outcome | None
    message: str
    drift: tuple[str, ...]
    on_vm: bool
    failing: str = ""


@dataclass(frozen=True)
class UpPrice:
    """
    The price of the machines that `up` will create, and the *seconds* until ttl ends them.

    *with_tpu* is false if only VM and bucket are created. *unbilled* is true on the local cloud.
    """

    spec: Spec
    hourly: Hourly
    seconds: float
    with_tpu: bool
    unbilled: bool


ShowJob = Callable[[Pass, float, float], None]
"""Shows what a pass has observed of the job, and what the deployment has cost so far in USD."""


def _show_nothing(_: Pass, __: float, ___: float) -> None:
    """Be the display of a caller that has none."""


@dataclass(frozen=True)
class UpOptions:
    """
    How far to bring a deployment up, and on which terms.

    *wait* keeps asking while no zone has capacity. With a *plan*, nothing is done that is not in that file.
    With *price_first* the price is shown before anything is done, which costs another observation.
    """

    goal: Goal = Goal.JOB
    wait: bool = False
    plan: Path | None = None
    price_first: bool = False
    says_what_is_sent: bool = True


TO_THE_JOB = UpOptions()


def needs_approval(choice: Choice, plan: Path | None, *, yes: bool, at_terminal: bool) -> bool:
    """Return whether the user must agree to the price before `up` does anything."""
    # The local cloud bills nothing, a stored plan was approved before, and a script cannot answer.
    return at_terminal and choice.cloud != "local" and plan is None and not (yes or choice.as_json)


def bring_up(
    choice: Choice, reporter: Reporter, options: UpOptions = TO_THE_JOB, *, session: Session | None = None,
    show_price: Callable[[UpPrice], None] = lambda _: None,
    show_job: Callable[[Spec], ShowJob] = lambda _: _show_nothing,
) -> Up:  # fmt: skip
    """
    Run passes until the goal of *options* is reached, for the deployment of the file or that of *session*.

    *show_price* gets the price before the first machine is created, and may raise to cancel if the price comes
    first. What *show_job* returns is called with each pass on the way.
    """
    session, approved = _opened(choice, reporter, options, session)
    sets = _examined(session, options)
    goal = options.goal
    if options.price_first and approved is None:
        show_price = _priced_first(session, sets, show_price, goal)
    bucket_first = _sent_before_the_lease(session, sets)
    only = frozenset({Kind.BUCKET, Kind.VM, Kind.BUNDLE}) if goal is Goal.BUCKET_AND_VM else frozenset(Kind)
    approve = any_plan if approved is None else partial(refuse_others, approved)
    said = _Price(session, approve, show_price, only)
    changes, show = 0, show_job(session.spec)

    def count(result: Pass) -> None:
        nonlocal changes
        changes += len(result.plan.changes)
        # The pass that reaches the goal is shown by the caller.
        if not goal.reached(result):
            show(result, *session.costs(session.records.current, result.world.observed_at))
        if goal is not Goal.BUCKET_AND_VM:
            _require_adopted_vm(session, result)

    with (
        leaving(lambda: STAYS if said.making else UNTOUCHED, lambda: _way_on(session)),
        session.holding_lease("up"),
        naming_quota_holders(session),
        reporter,
        session.notifier,
    ):
        _build_and_record(session, approved, sets, bucket_first=bucket_first)
        loop = session.loop(said.judge, only, outage_timeout=OUTAGE_TIMEOUT)
        result = pass_until(
            goal.reached, loop, session.deployment, reporter, count, session.notifier.take_pass, wait=options.wait,
            # The plan's waiting items are about to be adopted, so they are not reported.
            tells=goal is not Goal.BUCKET_AND_VM,
        )  # fmt: skip
    state = deployment_state(session.spec, result.world, session.records.current, result.plan, watched=False)
    return Up(
        session.spec.name, session.blueprint.bucket, changes, state, result.plan.outcome, result.plan.message,
        tuple(drift_notes(session.spec, result.world)), session.spec.watch.on_vm,
        failing_text(result.world.known_heartbeats, session.spec.job.failures),
    )  # fmt: skip


def _opened(
    choice: Choice, reporter: Reporter, options: UpOptions, session: Session | None
) -> tuple[Session, Approved | None]:
    """Return the session, and what was approved if a plan file is carried out; end what is past its ttl."""
    approved: Approved | None = None
    if options.plan:
        session, approved = open_approved(choice, options.plan, reporter)
    else:
        session = session or Session(choice, reporter)
    end_expired(session)
    return session, approved


def _examined(session: Session, options: UpOptions) -> tuple[DataSet, ...]:
    """Return the job's data, and say what will be sent and what the job may lose. Raise UsageError."""
    sets = read_data(session.path, session.spec, session.choice.cloud, session.reporter)
    # The code of a fleet's machines is ours, and says nothing of the jobs that will come.
    if not fleet_of(session.spec):
        if options.says_what_is_sent:
            say_what_is_sent(session, sets)
        # Before the price and its question: a job whose steps are all lost in a preemption may not be worth it.
        warn_of_work_in_vain(session)
    check_sources(session)
    return sets


def _sent_before_the_lease(session: Session, sets: tuple[DataSet, ...]) -> bool:
    """Upload the data to a bucket that exists; return whether bucket and data are still to come."""
    # Before the lease: uploading may take hours and changes nothing else, and a watch may run meanwhile.
    bucket_first = bool(sets) and not bucket_is_there(session)
    if sets and not bucket_first:
        with session.reporter:
            send_data(session, sets)
    return bucket_first


def _require_adopted_vm(session: Session, result: Pass) -> None:
    """Raise UsageError if the file names a VM of the user's own that has not been adopted."""
    if lacks_named_vm(session.spec, result.world) and not session.deployment.records.current.vm.accepted:
        name = names.vm_name(session.spec)
        raise UsageError(
            f"the VM {name} is not part of the deployment yet", hint=f"run: tpuctl adopt --vm {name}",
            changed="the bucket is there; no machine was requested", code="TPU-147",
        )  # fmt: skip


def record_for_the_watch(session: Session, began: float, still: Callable[[], bool]) -> bool:
    """
    Record that a deployment is wanted, and leave the passes to a watch; return False unless *still* holds.

    *still* is called under the lease. *began* is the start of its time to live, in seconds since the epoch.
    """
    sets = read_data(session.path, session.spec, session.choice.cloud, session.reporter)
    with session.holding_lease("up"):
        if not still():
            return False
        _build_and_record(session, None, sets, bucket_first=False)
        session.records.update(lambda record: replace(record, started_at=min(began, record.started_at)))
    return True


def _priced_first(
    session: Session, sets: tuple[DataSet, ...], show_price: Callable[[UpPrice], None], goal: Goal
) -> Callable[[UpPrice], None]:
    """Show the price of the expected changes; return a *show_price* for later that does nothing."""
    check_project_and_login(session.choice, session.spec.name, session.project, session.folder)
    bundle, agent = build_artifacts(session, sets)
    with session.reporter:
        found = plan_up(session, bundle, agent)
    expected = found.plan
    if runs_again(session.spec, found.as_is.heartbeats, session.records.current, found.record):
        session.reporter.say(RUNS_AGAIN)
    if goal is Goal.BUCKET_AND_VM:
        expected = replace(expected, changes=tuple(c for c in expected.changes if c.kind is not Kind.NODE))
    # Outside of the reporter's live line, which would overwrite the question.
    if _makes(expected):
        show_price(_price(session, expected))
    return lambda _: None


class _Price:
    """Passes each plan to *approve*, and shows the price before the first that creates or replaces a machine."""

    def __init__(
        self, session: Session, approve: Callable[[Plan], None], show_price: Callable[[UpPrice], None],
        only: frozenset[Kind],
    ) -> None:  # fmt: skip
        self._session, self._approve, self._show_price, self._only = session, approve, show_price, only
        self.making, self._zone = False, ""

    def judge(self, plan: Plan) -> None:
        """Check *plan* before its first change; raise what *approve* raises."""
        self._approve(plan)
        creating, newest = plan.creating_only(self._only), self._session.records.current.node.incarnation
        replaces = plan.outcome is None and Kind.NODE in self._only
        replaces &= (Kind.NODE, Verb.DELETE, newest) in {
            (c.kind, c.verb, c.incarnation) for c in plan.changes
        }
        if self.making or not (_makes(creating) or replaces):
            return
        self.making, price = _makes(creating), _price(self._session, creating, replaces=replaces)
        # Again only if the new TPU is in another zone than the price was for.
        if price.hourly.zone != self._zone:
            self._zone = price.hourly.zone
            self._show_price(price)


def _makes(plan: Plan) -> bool:
    """Return whether *plan* creates or starts something that is billed by the hour."""
    return any(c.kind in {Kind.NODE, Kind.VM} and c.verb in MAKING for c in plan.changes)


def _price(session: Session, plan: Plan, *, replaces: bool = False) -> UpPrice:
    spec, record, now = session.spec, session.records.current, session.clock.now()
    there = newest_span(record)
    made = any(c.kind is Kind.NODE and c.verb in MAKING for c in plan.changes)
    with_tpu = made or replaces or there is not None
    # `up` on an ended deployment restarts its ttl. The seconds before its first machine do not count, so that the
    # sum is that of `plan`.
    goes_on = not record.outcome and any(span.since >= record.started_at > 0 for span in record.spans)
    remaining = max(0.0, record.started_at + spec.watch.ttl - now) if goes_on else float(spec.watch.ttl)
    price = hourly_of(spec, plan, session.catalog, there)
    if not with_tpu:
        price = replace(price, lines=tuple(line for line in price.lines if line.meter is not Meter.NODE))
    return UpPrice(spec, price, remaining, with_tpu, unbilled=session.choice.cloud == "local")


def pass_until(
    goal: Callable[[Pass], bool], loop: Loop, deployment: Deployment, reporter: Reporter,
    *also: Callable[[Pass], None], wait: bool = False, tells: bool = True,
) -> Pass:  # fmt: skip
    """
    Run passes until *goal* or the deployment's end; call each of *also* with each; return the last one.

    Raise what further passes cannot fix: a failed end, a refusal and, without *wait*, a stockout. With
    *tells* false the reporter gets nothing about what the plan waits for.
    """

    def judge(result: Pass) -> None:
        record, now = deployment.records.current, deployment.clock.now()
        refused = {one.zone for one in record.refusals if one.kind is Kind.NODE}
        for failure in result.failures:
            _stop_on(failure, result, elsewhere=not refused.issuperset(deployment.spec.tpu.zones))
            reporter.failure(failure, now)
        if result.plan.outcome is Outcome.REFUSED:
            raise_outcome(result)
        vm = result.world.vm
        if isinstance(vm, Present) and narrow(deployment.spec, "vm", vm.value.scopes):
            raise AuthError(
                NARROW_VM, hint=RECREATE_VM, changed="the job keeps running unchanged", code="TPU-252"
            )
        if result.plan.outcome is None:
            # Also with --wait: never wait for what no zone will grant.
            raise_hopeless(record)
            if not wait:
                raise_stockout(record, deployment.spec.tpu.zones, deployment.spec.tpu.type)
        if tells:
            reporter.waiting(result.plan.waits, now)

    # Stored before the pass is judged, so that the events include the error that ends `up`.
    result = loop.run(goal, lambda _: deployment.store_events(), *also, judge)
    raise_outcome(result)
    return result


def _way_on(session: Session) -> str:
    again = resuming_command(session.spec, session.records.current)
    return f"go on with `{again}`, or delete the machines with `tpuctl down`"


def _build_and_record(
    session: Session, approved: Approved | None, sets: tuple[DataSet, ...], *, bucket_first: bool
) -> None:
    """
    Build bundle and agent and record what is wanted. Raise ConflictError if it is not what was *approved*.

    With *bucket_first* the bucket for the data is created, and the data uploaded, before the machines.
    """
    bundle, agent = build_artifacts(session, sets)
    if approved is not None:
        # Before anything is recorded, so that an outdated plan changes nothing.
        check(session, approved, bundle, agent)
    # Before the first create: if `up` is killed, this computer still knows the ttl.
    remember(session)
    if bucket_first:
        first_bucket(session)
        send_data(session, sets)
    if record_wanted(session.deployment, bundle, agent):
        session.reporter.say("the job was done; its code or settings have changed, so it starts again")


def _stop_on(failure: FailedChange, result: Pass, *, elsewhere: bool) -> None:
    """Raise a failure that repeating the pass cannot fix; *elsewhere*: some zone was not asked yet."""
    # The machine may be booting or shutting down; the next pass retries, or the machine asks the bucket.
    if failure.waiting or (failure.change.kind is Kind.JOB and not isinstance(failure.error, HostKeyError)):
        return
    goes = any(c.kind is Kind.NODE and c.verb is Verb.DELETE for c in result.plan.changes)
    if failure.error.retry is Retry.QUOTA and (goes or (elsewhere and failure.change.kind is Kind.NODE)):
        return  # The old TPU uses the quota until it is deleted; another zone has its own quota.
    if failure.error.retry in {Retry.PERMANENT, Retry.QUOTA}:
        failed = [f.change for f in result.failures]
        made = [c for c in result.plan.changes if c.verb is Verb.CREATE and c not in failed]
        vm, machines = result.world.vm, [(c.kind, c.name) for c in made if c.kind in {Kind.NODE, Kind.VM}]
        if isinstance(vm, Present) and (Kind.VM, vm.value.name) not in machines:
            machines.append((Kind.VM, vm.value.name))
        if machines:
            billed = ", ".join(f"{kind.title} {name}" for kind, name in machines)
            failure.error.explain(changed=f"{billed}: billed; `tpuctl down` removes what was made")
        raise failure.error
