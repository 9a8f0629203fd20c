"""Store a plan in a file: `plan --output F` writes it, `up F` applies it or refuses it as outdated."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.source_files import PLAN
from orchestrator.app.source.wanted import as_wanted, trained, with_reported_end
from orchestrator.config.adapter import dump, restore
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.checksum import CHECKSUM, checksum, with_checksum
from orchestrator.domain.observation import World
from orchestrator.domain.plan import Plan
from orchestrator.domain.record import Record
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.engine.reconcile.observe import observe
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import UsageError
from orchestrator.planning.approval import Approved, needs_same_cloud, observations_of, refuse_changed
from orchestrator.planning.update_record import update_record
from orchestrator.planning.whole_plan import whole_plan


def write_plan(path: Path, approved: Approved) -> None:
    """Write an approved plan to *path*."""
    body = json.dumps(with_checksum(approved.as_dict()), indent=1, sort_keys=True)
    # The mark is first, so that the code bundle recognises and skips a plan file.
    write_private(path.absolute(), PLAN + b" true,\n" + body.encode().removeprefix(b"{\n"))


def read_plan(path: Path) -> Approved:
    """Read a plan. Raise UsageError if the file is not a plan or was changed since."""
    try:
        body = dict(json.loads(path.read_bytes()))
        body.pop("tpuctl_plan", None)
        # Protects against edits and cut files only: who writes the file can write a checksum too. A plan
        # of another person must be trusted like a deployment file of theirs.
        whole = body.pop(CHECKSUM, "") == checksum(body)
        found = replace(Approved.from_dict(body), path=str(path))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(path, str(error)) from error
    if not whole:
        raise _unreadable(path, "its checksum does not fit")
    return found


def _unreadable(path: Path, message: str) -> UsageError:
    hint = f"write one with: tpuctl plan --output {path}"
    return UsageError(
        f"the plan {path} cannot be read: {message}", hint=hint, changed="nothing was changed", code="TPU-115"
    )


def open_approved(choice: Choice, path: Path, reporter: Reporter) -> tuple[Session, Approved]:
    """Return the plan in *path* and the session of its deployment. Raise UsageError."""
    approved = read_plan(path)
    needs_same_cloud(approved, choice.cloud)
    spec = replace(restore(approved.spec), project=approved.project)
    return Session(choice, reporter, spec, Path(approved.file)), approved


def check(session: Session, approved: Approved, bundle: str, agent: str) -> None:
    """Raise ConflictError if the plan would now be different."""
    fresh, _ = plan_to_approve(session, bundle, agent)
    refuse_changed(approved, fresh)


@dataclass(frozen=True)
class UpPlan:
    """
    What `up` would do.

    *world* was observed with the record that `up` begins with; *as_is* is the same moment with the reports of the
    TPU that there is, since a reopened deployment ignores them.
    """

    plan: Plan
    world: World
    record: Record
    as_is: World


def plan_up(session: Session, bundle: str, agent: str) -> UpPlan:
    """Return what `up` would do now, and change nothing."""
    spec, known, now = session.spec, session.records.current, session.clock.now()
    # Exactly what `up` records before its first pass; otherwise every plan would be refused as outdated.
    store = session.cloud.store
    heartbeats = read_heartbeats(store, known.node.incarnation)
    over = with_reported_end(spec, heartbeats, known)
    wanted = as_wanted(spec, over, bundle, agent, now, complete=trained(spec, store, over, bundle))
    # With that record, since a reopened deployment gets a new TPU and ignores the old one's end.
    world = observe(session.cloud, spec, wanted, session.blueprint.bucket, now)
    record = update_record(wanted, world)
    plan = whole_plan(spec, load_catalog().accelerator(spec.tpu.type), world, record)
    return UpPlan(plan, world, update_record(known, world), replace(world, heartbeats=heartbeats))


def plan_to_approve(session: Session, bundle: str, agent: str) -> tuple[Approved, UpPlan]:
    """Return what `up` would do now as a plan to approve. Raise TransientError as `observations_of` does."""
    spec, found = session.spec, plan_up(session, bundle, agent)
    approved = Approved(
        deployment=spec.name,
        project=session.project,
        cloud=session.choice.cloud,
        file=str(session.path.absolute()),
        file_digest=_digest(session.path),
        tpuctl=__version__,
        bundle=bundle,
        agent=agent,
        spec=dump(spec),
        observations=observations_of(found.world, found.record),
        changes=tuple(change.stored() for change in found.plan.changes),
    )
    return approved, found


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"
