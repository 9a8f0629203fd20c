"""Build what is pushed, the code bundle and the agent, and record it as wanted."""

import os
from dataclasses import replace
from pathlib import Path

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.bundle import build
from orchestrator.app.source.job_data import with_code
from orchestrator.app.source.local_data import DataSet
from orchestrator.app.source.source_folder import source_folder
from orchestrator.contract.phase import Phase
from orchestrator.domain.bucket_grants import grants_mark
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Observed, Present
from orchestrator.domain.plan import Outcome
from orchestrator.domain.ports import Store
from orchestrator.domain.record import Record, setting_aside
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.domain.tpu_shape import reshaped, shape_of
from orchestrator.emulator.machines.machine_python import interpreters
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.reconcile.artifacts import agent_file, bundle_file
from orchestrator.errors import NotFoundError, TpuctlError, UsageError
from orchestrator.google.bodies import ARM_MACHINES
from orchestrator.planning.deployment_outcome import ALL_DONE, target_reached
from orchestrator.planning.job_digest import job_digest, with_digest_of_today
from orchestrator.planning.tpu.race import newest_refused
from orchestrator.planning.uncommitted import ended_uncommitted, uncommitted_end_text
from orchestrator.private_folders import private_folder
from orchestrator.scripts import agent_zipapp, uv_program

RUNS_AGAIN = (
    "The job is done; up would start it again from its newest checkpoint, and it trains further only if the "
    "program's own number of steps is higher now. The model alone: tpuctl checkpoints fetch"
)
MAX_UP_TIMES = 100
"""Times of `up` that are remembered; reports of older ones are not read."""


def build_artifacts(session: Session, sets: tuple[DataSet, ...] = ()) -> tuple[str, str]:
    """Build bundle and agent in the deployment's folder; return their sha256. *sets* are the job's data."""
    if session.choice.cloud == "local":
        need_python(session.spec)
    private_folder(session.bundles)
    source = source_folder(session.path, session.spec)
    bundle = build(source, session.bundles, more=with_code(sets))
    wanted = bundle_file(session.bundles, bundle.digest)
    if bundle.path != wanted:
        # One rename, so that a parallel push of the same code finds the whole file or none.
        bundle.path.replace(wanted)
    fresh = session.bundles / "agent.new"
    digest = agent_zipapp.build(fresh)
    Path(fresh).replace(agent_file(session.bundles, digest))
    if session.choice.cloud != "local":
        download_uv(session.spec, session.bundles, session.reporter)
    return bundle.digest, digest


def need_python(spec: Spec) -> None:
    """Raise UsageError if this computer, whose interpreters local machines use, lacks `job.python`."""
    wanted, here = spec.job.python, interpreters(os.environ)
    if wanted and ".".join(wanted.split(".")[:2]) not in here:
        raise UsageError(
            f"job.python is {wanted}, and local machines use this computer's interpreters: it has "
            f"{', '.join(here)}",
            hint=f"run: uv python install {wanted} (or pyenv install), or change job.python",
            changed="nothing was created",
        )


def download_uv(spec: Spec, folder: Path, reporter: Reporter) -> None:
    """
    Put uv, the program of `tpuctl-venv`, where uploads are taken from; two builds if the VM has Arm processors.

    A failure is reported only; the machine tells a job that needs uv what to do. Local machines use this
    computer's.
    """
    arm = isinstance(spec.vm, VmSpec) and spec.vm.machine_type.partition("-")[0] in ARM_MACHINES
    for machine in ("x86_64", *(("aarch64",) if arm else ())):
        try:
            uv_program.packed(machine, folder)
        except TpuctlError as error:
            reporter.say(
                f"warning: {error.message}. Jobs that use tpuctl-venv will fail; {error.next_step}",
                style="warning",
            )


def with_reported_end(spec: Spec, heartbeats: Observed[tuple[Heartbeat, ...]], record: Record) -> Record:
    """Return the record with the end that the workers report, if no watcher has recorded it."""
    found = heartbeats.value if isinstance(heartbeats, Present) else ()
    if record.outcome or not found:
        return record
    # "Done" without a committed step is no proof; what is saved decides.
    saved = all(b.phase is Phase.DONE and b.committed_step is not None for b in found)
    if saved and len(found) == found[0].workers:
        return replace(record, outcome=Outcome.DONE, message=ALL_DONE)
    uncommitted = ended_uncommitted(found)
    if uncommitted:
        message = uncommitted_end_text(spec.job.checkpoint, uncommitted)
        return replace(record, outcome=Outcome.UNCOMMITTED, message=message)
    failed = any(b.phase is Phase.FAILED for b in found)
    return replace(record, outcome=Outcome.FAILED) if failed else record


def trained(spec: Spec, store: Store, record: Record, bundle: str) -> str:
    """Return why the job with the code *bundle* has nothing left to train, "" if it has or if that is unknown."""
    target, before = spec.job.target_steps, with_digest_of_today(spec, record).job
    # `down` ends the machines and not the model: the same job, brought up again, would find that it is done.
    same = not before.bundle and (bundle, job_digest(spec)) == (before.before_down, before.settings)
    if record.outcome is not Outcome.DONE or not (target or same):
        return ""
    try:
        complete = [one for one in read_checkpoints(store, spec.job.checkpoint) if one.complete]
    except NotFoundError:
        return ""
    except TpuctlError:
        # Unknown is not absent: for a model that may be there, no machine is bought.
        return record.message if same else ""
    # A count of saves says nothing about steps.
    step = next((one.step for one in complete if not one.counted), 0)
    if target and step >= target:
        return target_reached(step, target)
    return record.message if same and complete else ""


def runs_again(
    spec: Spec, heartbeats: Observed[tuple[Heartbeat, ...]], before: Record, after: Record
) -> bool:
    """Return whether `up` opens a job again that was done; *before* and *after* are the records around it."""
    return with_reported_end(spec, heartbeats, before).outcome is Outcome.DONE and after.outcome is None


def record_wanted(deployment: Deployment, bundle: str, agent: str) -> bool:
    """
    Put what `up` wants into the record; the first pass stores it before it creates anything.

    Return whether this opens a job again that was done.
    """
    spec, records, now = deployment.spec, deployment.records, deployment.clock.now()
    before, store = records.current, deployment.cloud.store
    heartbeats = read_heartbeats(store, before.node.incarnation)
    complete = trained(spec, store, with_reported_end(spec, heartbeats, before), bundle)

    def wanted(record: Record) -> Record:
        return as_wanted(
            spec, with_reported_end(spec, heartbeats, record), bundle, agent, now, complete=complete
        )

    records.update_later(wanted)
    return runs_again(spec, heartbeats, before, records.current)


def as_wanted(
    spec: Spec, record: Record, bundle: str, agent: str, now: float, *, complete: str = ""
) -> Record:
    """
    Return the record with all that `up` wants: code, agent, the job's settings, the TPU's shape.

    *complete* is the result of `trained`; with it, the job stays done whatever has changed.
    """
    # If the file's permissions differ from those of the bucket's machines, these are granted first.
    ready = record.bucket.ready and record.bucket.grants == grants_mark(spec)
    record = replace(record, bucket=replace(record.bucket, ready=ready))
    record = reshaped(with_digest_of_today(spec, record), shape_of(spec))
    record = with_wanted(record, bundle, agent, job_digest(spec), now, complete=complete)
    return replace(record, message=complete) if complete else record


def with_wanted(
    record: Record, bundle: str, agent: str, job: str, now: float, *, complete: str = ""
) -> Record:
    """
    Return the record with what `up` wants: code, agent and the digest of the job's settings.

    New code or settings reopen an ended deployment, unless its training is *complete*, and are pushed to
    running machines.
    """
    # Its refusals are forgotten below: what was clearly refused must not be taken for a request without an answer.
    if newest_refused(record):
        record = replace(record, node=replace(record.node, requested_at=0.0))
    # A new agent only means an upgrade of tpuctl, which is no reason to train again.
    changed = (bundle, job) != (record.job.bundle, record.job.settings)
    # Machines that took everything from the bucket were never pushed to, but have the old settings too.
    asked = record.job.settings != "" and (record.node.accepted or record.node.requested_at > 0)
    due = record.job.settings_due or ((record.job.pushed != "" or asked) and record.job.settings != job)
    up_times = record.up_times if record.started_at else with_up_time(record, now)
    record = replace(
        record,
        job=replace(record.job, bundle=bundle, agent=agent, settings=job, settings_due=due),
        started_at=record.started_at or now,
        up_times=up_times,
    )
    # `up` after a failure or a used-up budget means "try again"; a done job starts again only for new code.
    over = record.outcome in {Outcome.FAILED, Outcome.LIMIT_REACHED}
    done = record.outcome in {Outcome.DONE, Outcome.UNCOMMITTED}
    # A TPU for a job that is fully trained would be billed in vain.
    if over or (done and changed and not complete):
        return replace(
            record,
            outcome=None,
            message="",
            refusals=(),
            started_at=now,
            up_times=with_up_time(record, now),
            # A new incarnation, since the name of a former TPU is never reused (decision 1).
            node=setting_aside(record),
            race=replace(record.race, round=0, claimed=False),
            operations=(),
            ssh=replace(record.ssh, failed_since=None),
            job=replace(record.job, settings_due=False),
            silence=replace(record.silence, never_reported=()),
        )
    return replace(record, refusals=())


def with_up_time(record: Record, now: float) -> tuple[float, ...]:
    """Return the times of `up` of the deployment, with *now* as the newest one."""
    # A record from before these times were stored has at least the last one.
    known = record.up_times or ((record.started_at,) if record.started_at else ())
    return (*known, now)[-MAX_UP_TIMES:] if now not in known else known
