"""tpuctl push: new code for a running job, without touching its machines."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options
from orchestrator.domain.plan import Kind

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.domain.observation import World
    from orchestrator.domain.plan import Plan
    from orchestrator.domain.record import Record
    from orchestrator.engine.reconcile import Pass

OURS = frozenset({Kind.BUNDLE, Kind.JOB, Kind.SIDECARS})
"""What a push may change: code, job and what runs beside it, never a machine."""
PATIENCE = 300.0
"""Seconds for which machines that cannot be reached are tried again."""


class LaterError(Exception):
    """Say that machines have to come first, which is not for a push to do."""


@dataclass(frozen=True)
class Wanted:
    """Hold what is to be pushed: the digests of code, agent and job settings."""

    bundle: str
    agent: str
    job: str

    def new(self, record: "Record") -> bool:
        """Say whether the record wants something else, or machines have not got what it wants."""
        return (self.bundle, self.agent, self.job) != (
            record.job.bundle,
            record.job.agent,
            record.job.settings,
        )


@click.command("push")
@deployment_options
@click.option("--dry-run", is_flag=True, help="Show what would be pushed, and leave.")
def command(choice: Choice, dry_run: bool) -> None:
    """
    Bring changed code and job settings to the running job, which starts again from its newest checkpoint.

    No machine is made or deleted. While the TPU is being replaced, the new code is kept in the bucket and the
    next machine takes it. A `tpuctl watch` steps aside meanwhile, and goes on with the new code.
    """
    from orchestrator.app.artifacts import build_artifacts
    from orchestrator.app.expired import remember, sweep_expired
    from orchestrator.app.job_data import check_sources, read_data, say_what_is_sent, send_data
    from orchestrator.app.leaving import leaving
    from orchestrator.app.session import Session
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.domain.lease import PUSH
    from orchestrator.planning.job import job_digest

    printer = EventPrinter()
    session = Session(choice, printer)
    sweep_expired(session)
    _must_run(session)
    before = session.records.current.job.bundle
    sets = read_data(session.path, session.spec, choice.cloud)
    say_what_is_sent(session, sets)
    check_sources(session)
    wanted = Wanted(*build_artifacts(session, sets), job_digest(session.spec))
    plan = _plan(session, wanted)
    body: dict[str, Any] = {
        "name": session.spec.name,
        "before": before,
        "bundle": wanted.bundle,
        "plan": plan,
    }
    if not plan or dry_run:
        outcome = "planned" if plan else "unchanged"
    else:
        for line in plan:
            say(f"~ {line}")
        with printer:
            send_data(session, sets, printer)
        with leaving("the job may run the old code or the new", "tpuctl push"), session.alone(PUSH), printer:
            _must_run(session)
            remember(session)
            outcome = _push(session, wanted, printer)
    if choice.as_json:
        print_json("push", {**body, "outcome": outcome})
        return
    if outcome == "planned":
        for line in plan:
            put(f"~ {line}")
        return
    say(
        {
            "unchanged": "no changes: the job runs this code with these settings",
            "running": "the job runs the new code",
            "recorded": "the new code is in the bucket; the next machine takes it (tpuctl watch makes one)",
        }[outcome]
    )


def _must_run(session: "Session") -> None:
    """Raise UsageError when there is no job that could take new code."""
    from orchestrator.errors import UsageError

    record = session.records.current
    if record.job.bundle and not record.outcome:
        return
    state = f"is over ({record.outcome})" if record.outcome else "is not up"
    raise UsageError(
        f"{session.spec.name} {state}: there is no running job to push to", hint="run: tpuctl up",
        unchanged="nothing was changed", code="TPU-130",
    )  # fmt: skip


def _plan(session: "Session", wanted: Wanted) -> list[str]:
    """Return in words what a push does; nothing when all machines have what is wanted."""
    from orchestrator.app.glance import glance
    from orchestrator.planning.decide import decide

    seen = glance(session)
    record = _with(seen.record, wanted, seen.world.seen_at)
    changes = decide(session.spec, seen.world, record, seen.usd).changes
    if not wanted.new(seen.record) and not any(c.kind is Kind.JOB for c in changes):
        return []
    lines = []
    if wanted.bundle != seen.record.job.bundle:
        lines.append(f"code {seen.record.job.bundle[:12]} becomes {wanted.bundle[:12]}")
    if wanted.agent != seen.record.job.agent:
        lines.append("the agent becomes the one of this tpuctl")
    if wanted.job != seen.record.job.settings:
        lines.append("the settings of the job change")
    return [*lines, _restart(seen.world)]


def _restart(world: "World") -> str:
    """Say what becomes of the job."""
    from orchestrator.domain.observation import NodeState, Present

    nodes = world.nodes.value if isinstance(world.nodes, Present) else ()
    if not any(node.state is NodeState.READY for node in nodes):
        return "job: no TPU is READY; the next one takes it"
    beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
    saved = [b.committed_step for b in beats]
    known = [step for step in saved if step is not None]
    where = f" on {len(saved)} machines" if len(saved) > 1 else ""
    if not known or len(known) < len(saved):
        return (
            f"job: starts again{where}, from what it saves when it is stopped; no checkpoint is complete yet"
        )
    return f"job: starts again{where} from its newest checkpoint (step {min(known)} or later)"


def _with(record: "Record", wanted: Wanted, now: float) -> "Record":
    from orchestrator.app.artifacts import want

    return want(record, wanted.bundle, wanted.agent, wanted.job, now)


def _delivered(record: "Record", mark: str) -> "Record":
    """Return the record with new code in the bucket, and no pause before the next try over SSH."""
    job, ssh = replace(record.job, uploaded=mark), replace(record.ssh, next_try_at=0.0)
    return replace(record, job=job, ssh=ssh)


def _push(session: "Session", wanted: Wanted, printer: "EventPrinter") -> str:
    """Upload the code, record that it is wanted, restart the job. A kill anywhere is healed by the next pass."""
    from orchestrator.contract.object_names import BUNDLES
    from orchestrator.engine.artifacts import agent_file, bundle_file

    for path in (agent_file(session.bundles, wanted.agent), bundle_file(session.bundles, wanted.bundle)):
        session.cloud.store.upload(f"{BUNDLES}{path.name}", path)
    mark = f"{wanted.bundle}:{wanted.agent}"
    now = session.clock.now()
    # Somebody asks for it now: the pause that a loop makes between two pushes is not for this one.
    session.records.update_later(lambda record: _delivered(_with(record, wanted, now), mark))
    watcher = session.watcher(_only_ours)
    end = session.clock.monotonic() + PATIENCE

    def after(result: "Pass") -> None:
        session.sink.flush()
        for failure in result.failures:
            if session.clock.monotonic() >= end:
                failure.error.unchanged = (
                    "the new code is recorded and in the bucket; the next watch brings it"
                )
                raise failure.error
            printer.failure(failure, session.clock.now())
        printer.waiting(result.plan.waiting, session.clock.now())

    try:
        result = watcher.run(_settled, after)
    except LaterError:
        session.records.flush()
        return "recorded"
    return "running" if result.plan.empty and not result.plan.waiting else "recorded"


def _only_ours(plan: "Plan") -> None:
    if any(change.kind not in OURS for change in plan.changes):
        raise LaterError


def _settled(result: "Pass") -> bool:
    """Say whether the job runs, or nothing can be done for it before its TPU is there."""
    from orchestrator.domain.observation import NodeState, Present

    nodes = result.world.nodes.value if isinstance(result.world.nodes, Present) else ()
    ready = any(node.state is NodeState.READY for node in nodes)
    return result.plan.empty and (not result.plan.waiting or not ready)
