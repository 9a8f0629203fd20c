"""A plan in a file: written by `plan --out F`, carried out by `up F`, or refused because something has moved."""

import hashlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.domain.plan import Kind, Plan
from orchestrator.errors import UsageError
from orchestrator.planning.approval import Approved, needs_same_cloud, refuse_moved, sights_of

if TYPE_CHECKING:
    from orchestrator.domain.observation import World
    from orchestrator.domain.record import Record, Span


def look_ahead(choice: Choice, out: Path | None = None, *, scripts: bool = False) -> Plan:
    """
    Look at the cloud, and show what `up` would change there; write it to *out* where one is named.

    Nothing else is changed. *scripts* shows those of the first machines too.
    """
    from orchestrator.advice.preview import preview
    from orchestrator.app.job_data import check_sources, read_data, with_code
    from orchestrator.app.preview import first_scripts
    from orchestrator.app.same_place import check_place
    from orchestrator.app.sent import render, what_is_sent
    from orchestrator.app.source_folder import source_folder
    from orchestrator.cli.console import page, say
    from orchestrator.cli.views import plan as plan_view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.config.shipped_catalog import load_catalog
    from orchestrator.domain.checksum import sealed
    from orchestrator.engine.atomic_files import write_atomically
    from orchestrator.planning.drift import left_alone
    from orchestrator.scripts import agent_zipapp
    from orchestrator.ssh.bundle import build

    printer = EventPrinter()
    session = Session(choice, Reporter())
    with printer:
        check_place(session)
    with tempfile.TemporaryDirectory(prefix="tpuctl-plan-") as folder:
        sets = read_data(session.path, session.spec, choice.cloud)
        source = source_folder(session.path, session.spec)
        bundle = build(source, Path(folder), more=with_code(sets)).digest
        agent = agent_zipapp.build(Path(folder) / "agent.pyz")
    with printer:
        approved, plan, world = _foreseen(session, bundle, agent)
        account = session.cloud.account.default_service_account
    texts = first_scripts(session.spec, session.project, bundle, agent) if scripts else {}
    shown = preview(
        session.spec, plan, load_catalog(), project=session.project, account=account, scripts=texts,
        notes=left_alone(session.spec, world), there=_billed_now(session.records.current),
    )  # fmt: skip
    check_sources(session)
    sent = what_is_sent(session.path, session.spec, source, sets, shown.hourly.storage_usd_gib_month)
    named = {**({"out": str(out)} if out else {}), **sent.as_dict()}
    plan_view.show(shown, as_json=choice.as_json, seen=plan_view.CLOUD, more=named, scripts=scripts)
    if not choice.as_json:
        with page() as console:
            render(sent, console, plan_view.WIDTH)
    if out is not None:
        text = json.dumps(sealed(approved.as_dict()), indent=1, sort_keys=True)
        write_atomically(out.absolute(), text.encode())
        say(f"written to {out}; to carry out exactly this: tpuctl up {out}")
    return plan


def _billed_now(record: "Record") -> "Span | None":
    """Return the stretch of the newest TPU that exists, None when there is none."""
    spans = [span for span in record.spans if span.kind is Kind.NODE and span.until is None]
    return max(spans, key=lambda span: span.since, default=None)


def read_plan(path: Path) -> Approved:
    """Read a plan; raise UsageError when the file is none, or is not as it was written."""
    from orchestrator.domain.checksum import SEAL, checksum

    try:
        body = dict(json.loads(path.read_bytes()))
        whole = body.pop(SEAL, "") == checksum(body)
        found = replace(Approved.from_dict(body), path=str(path))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(path, str(error)) from error
    if not whole:
        raise _unreadable(path, "its checksum does not fit")
    return found


def _unreadable(path: Path, why: str) -> UsageError:
    hint = f"write one with: tpuctl plan --out {path}"
    return UsageError(
        f"the plan {path} cannot be read: {why}", hint=hint, unchanged="nothing was changed", code="TPU-115"
    )


def open_approved(choice: Choice, path: Path, reporter: Reporter) -> tuple[Session, Approved]:
    """Return the session of the deployment that a plan is about."""
    from orchestrator.config.adapter import restore

    if choice.settings or choice.file:
        raise UsageError(
            "a plan holds the deployment file and its settings: --file and --set do not go with it",
            hint=f"tpuctl plan --out {path} --set ..., then: tpuctl up {path}",
            unchanged="nothing was changed",
        )  # fmt: skip
    approved = read_plan(path)
    needs_same_cloud(approved, choice.cloud)
    spec = replace(restore(approved.spec), project=approved.project)
    return Session(choice, reporter, spec, Path(approved.file)), approved


def check(session: Session, approved: Approved, bundle: str, agent: str) -> None:
    """Raise ConflictError when the plan would be another one now."""
    fresh, *_ = _foreseen(session, bundle, agent)
    refuse_moved(approved, fresh)


def _foreseen(session: Session, bundle: str, agent: str) -> "tuple[Approved, Plan, World]":
    """Return what `up` would do now, without doing it, and what it was foreseen from."""
    from orchestrator.app.artifacts import as_wanted, ended
    from orchestrator.config.adapter import dump
    from orchestrator.config.shipped_catalog import load_catalog
    from orchestrator.engine.heartbeats import read_heartbeats
    from orchestrator.engine.observe import observe
    from orchestrator.planning.forecast import foresee
    from orchestrator.planning.update_record import learn

    spec, known, now = session.spec, session.records.current, session.clock.now()
    beats = read_heartbeats(session.cloud.store, known.node.incarnation)
    world = observe(session.cloud, spec, known, session.blueprint.bucket, now)
    record = learn(as_wanted(spec, ended(spec, beats, known), bundle, agent, now), world)
    sights = sights_of(world, learn(known, world))
    plan = foresee(spec, load_catalog().accelerator(spec.tpu.type), world, record)
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
