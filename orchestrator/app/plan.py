"""Plan what `up` would change: offline from nothing, or from the state of the cloud."""

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.advice.check.rules import run_rules
from orchestrator.advice.preview import Preview, preview
from orchestrator.app.check import Checked, missing_for
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import every_earlier_cost
from orchestrator.app.deployment.session import Session, read_spec
from orchestrator.app.plan_file import plan_to_approve, write_plan
from orchestrator.app.prices import catalog_for
from orchestrator.app.source.bundle import build
from orchestrator.app.source.job_data import check_sources, read_data, with_code
from orchestrator.app.source.local_data import DataSet
from orchestrator.app.source.sent_files import Sent, what_is_sent
from orchestrator.app.source.source_facts import gather
from orchestrator.app.source.source_files import PLAN_NAMES
from orchestrator.app.source.source_folder import source_folder
from orchestrator.app.status.status import judged, state_of, watcher_of
from orchestrator.app.this_computer.same_project import check_project_and_login
from orchestrator.app.this_computer.state_folders import is_known
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.ports import CloudAccount
from orchestrator.domain.record import JobRecord, NodeRecord, Record
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import DeploymentState
from orchestrator.emulator.address import local_folder
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.planning.drift import drift_notes
from orchestrator.planning.whole_plan import plan_from_nothing
from orchestrator.pricing.cost_so_far import newest_span
from orchestrator.scripts import agent_zipapp


@dataclass(frozen=True)
class Planned:
    """
    A plan and its context.

    *state* is that of the deployment now, None if the cloud was not asked. *from_cloud* means that existing
    resources were observed. *checked* is what `check` says. *out* is the file that the plan was written to.
    """

    preview: Preview
    sent: Sent
    from_cloud: bool
    checked: Checked | None = None
    out: Path | None = None
    state: DeploymentState | None = None


def plan(
    choice: Choice,
    reporter: Reporter,
    *,
    out: Path | None = None,
    scripts: bool = False,
    offline: bool = False,
) -> Planned:
    """
    Plan `up`: from the cloud if this computer has brought the deployment up or *out* is set, else from nothing.

    *scripts* adds the scripts of the first machines.
    """
    path, spec = read_spec(choice)
    if out is None and (offline or not is_known(choice.cloud, spec.name)):
        found = _from_file(choice, path, spec, reporter, scripts=scripts)
        deleted = not offline and bool(every_earlier_cost(choice.cloud, spec.name))
        return replace(found, state=DeploymentState.DELETED) if deleted else found
    return _from_cloud(choice, path, spec, reporter, out, scripts=scripts)


def from_nothing(choice: Choice, reporter: Reporter, *, scripts: bool = False) -> Planned:
    """Plan a complete `up` without credentials or network."""
    return _from_file(choice, *read_spec(choice), reporter, scripts=scripts)


def _from_file(choice: Choice, path: Path, spec: Spec, reporter: Reporter, *, scripts: bool) -> Planned:
    catalog = catalog_for(choice.cloud)
    sets = read_data(path, spec, choice.cloud, reporter)
    bundle, agent = _digests(source_folder(path, spec), sets)
    expected = plan_from_nothing(spec, catalog.accelerator(spec.tpu.type), bundle, agent)
    # Without asking the login for its project, which may need a call.
    project = project_offline(choice.cloud, spec)
    texts = _first_scripts(spec, project or "PROJECT", bundle, agent) if scripts else {}
    first = f"the VM is yours and is adopted first: tpuctl adopt --vm {names.vm_name(spec)}"
    notes = (first,) if names.takes_vm(spec) else ()
    shown = preview(
        spec, expected, catalog, project=project, scripts=texts, notes=notes, local=choice.cloud == "local"
    )
    checked = _checked(choice, path, spec, sets)
    return Planned(shown, _sent(path, spec, sets, shown), from_cloud=False, checked=checked)


def _checked(choice: Choice, path: Path, spec: Spec, sets: tuple[DataSet, ...]) -> Checked:
    """Return what `tpuctl check` says of the same file and code."""
    facts = gather(source_folder(path, spec), skip=path)
    facts = replace(facts, data_bytes=sum(one.size for one in sets))
    findings = run_rules(spec, catalog_for(choice.cloud), facts)
    return Checked(spec.name, (*missing_for(choice.cloud), *findings), facts)


def project_offline(cloud: str, spec: Spec) -> str | None:
    """Return the project if it is known without a login, else None."""
    if cloud == "local":
        # Half of the local cloud comes with it, and nothing else here needs that.
        from orchestrator.emulator.start_options import load_options

        return load_options(local_folder()).project
    return spec.project or os.environ.get("GOOGLE_CLOUD_PROJECT")


def _from_cloud(
    choice: Choice, path: Path, spec: Spec, reporter: Reporter, out: Path | None, *, scripts: bool
) -> Planned:
    """Observe the cloud and plan what `up` would change; writes nothing but *out*."""
    session = Session(choice, reporter, spec, path)
    with reporter:
        check_project_and_login(choice, session.spec.name, session.project, session.folder)
    sets = read_data(session.path, session.spec, choice.cloud, reporter)
    source = source_folder(session.path, session.spec)
    if out is not None and out.suffix not in PLAN_NAMES and out.resolve().is_relative_to(source):
        # The plan would be part of the code, and thus change the code that it describes.
        raise UsageError(
            f"--output {out}: a plan among the code needs a name that ends in .json",
            hint=f"use: --output {out.with_suffix('.json')}", changed="nothing was written",
        )  # fmt: skip
    bundle, agent = _digests(source, sets)
    with reporter:
        approved, found = plan_to_approve(session, bundle, agent)
        account = session.cloud.account.default_service_account
        state = state_of(session, judged(session, found.as_is), watcher_of(session, found.as_is))
    texts = _first_scripts(session.spec, session.project, bundle, agent) if scripts else {}
    used = tuple(sorted({heartbeat.format for heartbeat in found.as_is.known_heartbeats if heartbeat.format}))
    used = used or _formats_in_bucket(session)
    shown = preview(
        session.spec, found.plan, load_catalog(), project=session.project, account=account, scripts=texts,
        notes=drift_notes(session.spec, found.world), there=newest_span(session.records.current),
        history=session.records.current.capacity_history, local=choice.cloud == "local", formats=used,
    )  # fmt: skip
    check_sources(session)
    if out is not None:
        write_plan(out, approved)
    sent = _sent(session.path, session.spec, sets, shown)
    checked = _checked(choice, session.path, session.spec, sets)
    return Planned(shown, sent, from_cloud=True, checked=checked, out=out, state=state)


def _formats_in_bucket(session: Session) -> tuple[str, ...]:
    """Return the formats of the checkpoints in the bucket; none if it cannot be read."""
    try:
        saved = read_checkpoints(session.store, session.spec.job.checkpoint)
    except TpuctlError:
        return ()
    return tuple(sorted({one.format for one in saved if one.complete and one.format}))


def _digests(source: Path, sets: tuple[DataSet, ...]) -> tuple[str, str]:
    """Return the digests of code and agent, built in a temporary folder."""
    # Not in the deployment's folder: planning writes nothing, and `up` builds the same bytes again.
    with tempfile.TemporaryDirectory(prefix="tpuctl-plan-") as folder:
        bundle = build(source, Path(folder), more=with_code(sets)).digest
        return bundle, agent_zipapp.build(Path(folder) / "agent.pyz")


def _sent(path: Path, spec: Spec, sets: tuple[DataSet, ...], preview: Preview) -> Sent:
    return what_is_sent(path, spec, source_folder(path, spec), sets, preview.hourly.storage_usd_gib_month)


def _first_scripts(spec: Spec, project: str, bundle: str, agent: str) -> dict[str, str]:
    """Return the scripts of the first incarnation's machines by name."""
    blueprint = Blueprint(spec, CloudAccount(project, ""), str)
    record = Record(
        node=NodeRecord(incarnation=1, zone=spec.tpu.zones[0]), job=JobRecord(bundle=bundle, agent=agent)
    )
    return blueprint.all_scripts(record)
