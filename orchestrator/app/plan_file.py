"""A plan in a file: written by `plan --out F`, carried out by `up F`, or refused because something has moved."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.wanted import as_wanted, ended, trained
from orchestrator.config.adapter import dump, restore
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.checksum import CHECKSUM, checksum, with_checksum
from orchestrator.domain.observation import World
from orchestrator.domain.plan import Plan
from orchestrator.domain.record import Record
from orchestrator.engine.atomic_files import write_atomically
from orchestrator.engine.heartbeats import read_heartbeats
from orchestrator.engine.observe import observe
from orchestrator.errors import UsageError
from orchestrator.planning.approval import Approved, needs_same_cloud, refuse_moved, sights_of
from orchestrator.planning.forecast import foresee
from orchestrator.planning.update_record import learn
from orchestrator.ssh.source_files import PLAN


def write_plan(path: Path, approved: Approved) -> None:
    """Write a plan for `up`."""
    body = json.dumps(with_checksum(approved.as_dict()), indent=1, sort_keys=True)
    # The mark comes first: by it the code's bundle leaves the file out where it lies among the code.
    write_atomically(path.absolute(), PLAN + b" true,\n" + body.encode().removeprefix(b"{\n"))


def read_plan(path: Path) -> Approved:
    """Read a plan; raise UsageError if the file is not a plan, or was changed after it was written."""
    try:
        body = dict(json.loads(path.read_bytes()))
        body.pop("tpuctl_plan", None)
        # Against edits and cut files only: who can write the file can write a checksum too. So a plan of
        # somebody else is to be trusted no more than their deployment file.
        whole = body.pop(CHECKSUM, "") == checksum(body)
        found = replace(Approved.from_dict(body), path=str(path))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(path, str(error)) from error
    if not whole:
        raise _unreadable(path, "its checksum does not fit")
    return found


def _unreadable(path: Path, why: str) -> UsageError:
    hint = f"write one with: tpuctl plan --out {path}"
    return UsageError(
        f"the plan {path} cannot be read: {why}", hint=hint, changed="nothing was changed", code="TPU-115"
    )


def open_approved(choice: Choice, path: Path, reporter: Reporter) -> tuple[Session, Approved]:
    """Return the session of the deployment that a plan is about."""
    if choice.settings or choice.file:
        raise UsageError(
            "a plan holds the deployment file and its settings: --file and --set do not go with it",
            hint=f"tpuctl plan --out {path} --set ..., then: tpuctl up {path}",
            changed="nothing was changed",
        )  # fmt: skip
    approved = read_plan(path)
    needs_same_cloud(approved, choice.cloud)
    spec = replace(restore(approved.spec), project=approved.project)
    return Session(choice, reporter, spec, Path(approved.file)), approved


def check(session: Session, approved: Approved, bundle: str, agent: str) -> None:
    """Raise ConflictError when the plan would be another one now."""
    fresh, *_ = foresee_now(session, bundle, agent)
    refuse_moved(approved, fresh)


def foresee_up(session: Session, bundle: str, agent: str) -> tuple[Plan, World, Record]:
    """Return what `up` would do now, without doing it, what it was foreseen from, and the record as it is."""
    spec, known, now = session.spec, session.records.current, session.clock.now()
    # Exactly what `up` will note and learn before its first pass, or every plan would be refused as moved.
    store = session.cloud.store
    over = ended(spec, read_heartbeats(store, known.node.incarnation), known)
    wanted = as_wanted(spec, over, bundle, agent, now, complete=trained(spec, store, over))
    # With that record: a deployment that is opened again gets a new TPU, and the old one's end is not its end.
    world = observe(session.cloud, spec, wanted, session.blueprint.bucket, now)
    record = learn(wanted, world)
    plan = foresee(spec, load_catalog().accelerator(spec.tpu.type), world, record)
    return plan, world, learn(known, world)


def foresee_now(session: Session, bundle: str, agent: str) -> tuple[Approved, Plan, World]:
    """Return what `up` would do now as a plan to be approved. Raise TransientError as `sights_of` does."""
    spec = session.spec
    plan, world, record = foresee_up(session, bundle, agent)
    sights = sights_of(world, record)
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
        sights=sights,
        changes=tuple(change.as_dict() for change in plan.changes),
    )
    return approved, plan, world


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"
