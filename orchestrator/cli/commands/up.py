"""tpuctl up: create what is missing, push the code, start the job."""

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.engine.apply import Failure
    from orchestrator.engine.reconcile import Pass
    from orchestrator.planning.approval import Approved
    from orchestrator.ssh.local_data import DataSet


STAYS = "what was asked for is still being made, and is billed"
GO_ON = "go on with `tpuctl up`, or remove it all with `tpuctl down`"


@click.command("up")
@deployment_options
@click.option("--dry-run", is_flag=True, help="Show the plan only: no credentials, no network.")
@click.option("--wait", is_flag=True, help="Keep asking when no zone has capacity.")
@click.option("--no-tpu", is_flag=True, help="Create bucket and VM only; a later `up` makes the TPU.")
@click.argument("plan", required=False, type=click.Path(path_type=Path, dir_okay=False))
def command(
    choice: Choice, dry_run: bool, wait: bool,
    no_tpu: bool, plan: Path | None,
) -> None:  # fmt: skip
    """
    Create bucket, VM and TPU side by side, push the job over SSH and start it.

    Run it again at any time: what is right is left alone, new code is pushed. When the job runs, `up`
    leaves; `tpuctl watch` then keeps it alive. PLAN is a file of `tpuctl plan --out F`: exactly that is done,
    or nothing, when something has moved since.
    """
    if dry_run and plan:
        raise UsageError(
            "--dry-run does not go with a plan", hint="tpuctl plan", unchanged="nothing was changed"
        )
    if dry_run:
        from orchestrator.app.preview import preview

        preview(choice, scripts=False)
        return
    if no_tpu and plan:
        raise UsageError(
            "--no-tpu does not go with a plan", hint="tpuctl plan", unchanged="nothing was changed"
        )
    bring_up(choice, wait=wait, plan=plan, goal=Goal.MACHINE_ROOM if no_tpu else Goal.JOB)


class Goal(Enum):
    """Name what `up` waits for: the job runs everywhere, bucket and VM are there, or a TPU has been asked for."""

    JOB = "job"
    MACHINE_ROOM = "bucket and VM"
    TPU_ASKED = "TPU asked for"

    def reached(self, result: "Pass") -> bool:
        """Say whether a pass was the last one."""
        from orchestrator.domain.observation import Absent, Present, VmState
        from orchestrator.domain.plan import Kind, Verb

        plan, vm = result.plan, result.world.vm
        if self is Goal.TPU_ASKED:
            return any((c.kind, c.verb) == (Kind.NODE, Verb.CREATE) for c in plan.changes)
        if self is Goal.MACHINE_ROOM:
            made = isinstance(result.world.bucket, Present)
            runs = isinstance(vm, Absent) or (isinstance(vm, Present) and vm.value.state is VmState.RUNNING)
            return plan.empty and made and runs
        return plan.empty and not plan.waiting


def bring_up(choice: "Choice", *, wait: bool, plan: Path | None = None, goal: Goal = Goal.JOB) -> None:
    """Run passes until *goal* is reached; with *plan*, do nothing beyond that file."""
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.job_data import (
        bucket_is_there,
        check_sources,
        read_data,
        say_what_is_sent,
        send_data,
    )
    from orchestrator.app.leaving import leaving
    from orchestrator.app.plan_file import open_approved
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.domain.plan import Kind, Outcome
    from orchestrator.engine.deployment import any_plan
    from orchestrator.engine.loop import raise_hopeless, raise_outcome, raise_stockout
    from orchestrator.engine.reconcile import Pass
    from orchestrator.planning.approval import refuse_others
    from orchestrator.planning.next_zone import hopeless

    printer = EventPrinter()
    session, approved = open_approved(choice, plan, printer) if plan else (Session(choice, printer), None)
    sweep_expired(session)
    sets = read_data(session.path, session.spec, session.choice.cloud)
    say_what_is_sent(session, sets)
    check_sources(session)
    waits = bool(sets) and not bucket_is_there(session)
    if sets and not waits:
        # Before the lease: what is sent changes nothing by itself, and a watch goes on beside it.
        with printer:
            send_data(session, sets, printer)
    only = frozenset({Kind.BUCKET, Kind.VM, Kind.BUNDLE}) if goal is Goal.MACHINE_ROOM else frozenset(Kind)
    approve = any_plan if approved is None else partial(refuse_others, approved)
    with leaving(STAYS, GO_ON), session.alone("up"), printer, session.notifier:
        _want(session, approved, sets, printer if waits else None)
        records, watcher = session.records, session.watcher(approve, only)
        changes = 0

        def after(result: Pass) -> None:
            nonlocal changes
            changes += len(result.plan.changes)
            session.sink.flush()
            session.notifier.seen(result)
            for failure in result.failures:
                _stop_on(failure, result)
                printer.failure(failure, session.clock.now())
            if result.plan.outcome is not None:
                if result.plan.outcome is Outcome.REFUSED:
                    raise_outcome(result)
                printer.waiting(result.plan.waiting, session.clock.now())
                return
            if hopeless(records.current):
                raise_hopeless(records.current)
            if not wait:
                raise_stockout(records.current, session.spec.tpu.zones)
            printer.waiting(result.plan.waiting, session.clock.now())

        result = watcher.run(goal.reached, after)
        raise_outcome(result)
    _tell(session, result, changes, goal)


def _tell(session: "Session", result: "Pass", changes: int, goal: Goal) -> None:
    """Say how it ended, what stays as it is, and what comes next."""
    from orchestrator.cli.console import print_json, say
    from orchestrator.planning.drift import left_alone

    for text in left_alone(session.spec, result.world):
        say(f"{text}.", style="yellow")
    body = {"name": session.spec.name, "bucket": session.blueprint.bucket, "changes": changes}
    if session.choice.as_json:
        print_json("up", {**body, "outcome": result.plan.outcome.value if result.plan.outcome else "running"})
    elif result.plan.outcome is not None:
        say(f"nothing to do: the job is done ({result.plan.reason})")
    elif goal is Goal.MACHINE_ROOM:
        say(
            f"{session.spec.name}: bucket and VM are there, no TPU was asked for. Next: tpuctl up",
            style="green",
        )
    elif changes == 0:
        say("no changes: bucket, VM, TPU and job are as tpuctl.yaml wants them")
    else:
        where = " --on-vm" if session.spec.watch.on_vm else ""
        say(f"{session.spec.name} is up. Next: tpuctl watch{where}", style="green")


def _want(
    session: "Session", approved: "Approved | None", sets: "tuple[DataSet, ...]", waits: "EventPrinter | None"
) -> None:
    """
    Build what is pushed and write down what is wanted, unless it is not what was *approved*.

    With *waits* there is no bucket for the data yet: it is made, and the data sent, before the machines.
    """
    from orchestrator.app.artifacts import as_wanted, build_artifacts, ended
    from orchestrator.app.expired import remember
    from orchestrator.app.job_data import first_bucket, send_data
    from orchestrator.app.plan_file import check
    from orchestrator.engine.heartbeats import read_heartbeats

    bundle, agent = build_artifacts(session, sets)
    if approved is not None:
        check(session, approved, bundle, agent)
    remember(session)
    if waits is not None:
        first_bucket(session)
        send_data(session, sets, waits)
    beats = read_heartbeats(session.cloud.store, session.records.current.node.incarnation)
    now = session.clock.now()
    # The first pass writes it, before it makes anything.
    session.records.update_later(
        lambda record: as_wanted(session.spec, ended(session.spec, beats, record), bundle, agent, now)
    )


def _stop_on(failure: "Failure", result: "Pass") -> None:
    """Raise a failure that repeating the pass cannot cure."""
    from orchestrator.domain.plan import Kind, Verb
    from orchestrator.errors import HostKeyError, Retry

    if failure.change.kind is Kind.JOB and not isinstance(failure.error, HostKeyError):
        return
    goes = any(c.kind is Kind.NODE and c.verb is Verb.DELETE for c in result.plan.changes)
    if failure.error.retry is Retry.QUOTA and goes:
        return  # The old TPU holds the quota until it is gone.
    if failure.error.retry in {Retry.PERMANENT, Retry.QUOTA}:
        failed = [f.change for f in result.failures]
        made = [c for c in result.plan.changes if c.verb is Verb.CREATE and c not in failed]
        machines = [f"{c.kind.value} {c.name}" for c in made if c.kind in {Kind.NODE, Kind.VM}]
        if machines:
            failure.error.unchanged = (
                f"{', '.join(machines)}: asked for, and billed; `tpuctl down` removes them"
            )
        raise failure.error
