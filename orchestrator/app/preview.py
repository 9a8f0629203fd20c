"""Show the plan of a whole `up` without touching anything: no credentials, no network."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.choice import Choice
from orchestrator.app.session import read_spec

if TYPE_CHECKING:
    from orchestrator.domain.plan import Plan
    from orchestrator.domain.spec import Spec


def preview(choice: Choice, *, scripts: bool) -> "Plan":
    """Print what `up` would do from nothing and return it; *scripts* adds what the machines would run."""
    from orchestrator.advice.preflight.rules import preflight
    from orchestrator.advice.preview import preview as preview_of
    from orchestrator.app.job_data import read_data, with_code
    from orchestrator.app.price_cache import catalog_for
    from orchestrator.app.sent import render, what_is_sent
    from orchestrator.app.source_facts import gather
    from orchestrator.app.source_folder import source_folder
    from orchestrator.cli.views import check
    from orchestrator.cli.views import plan as plan_view
    from orchestrator.planning.forecast import forecast
    from orchestrator.scripts import agent_zipapp
    from orchestrator.ssh.bundle import build

    path, spec = read_spec(choice)
    catalog = catalog_for(choice.cloud)
    with tempfile.TemporaryDirectory(prefix="tpuctl-plan-") as folder:
        sets = read_data(path, spec, choice.cloud)
        bundle = build(source_folder(path, spec), Path(folder), more=with_code(sets)).digest
        agent = agent_zipapp.build(Path(folder) / "agent.pyz")
    plan = forecast(spec, catalog.accelerator(spec.tpu.type), bundle, agent)
    project = spec.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
    texts = first_scripts(spec, project or "PROJECT", bundle, agent) if scripts else {}
    shown = preview_of(spec, plan, catalog, project=project, scripts=texts)
    facts = gather(source_folder(path, spec), skip=path)
    facts = replace(facts, data_bytes=sum(one.size for one in sets))
    findings = preflight(spec, catalog, facts)
    sent = what_is_sent(path, spec, source_folder(path, spec), sets, shown.hourly.storage_usd_gib_month)
    checks = {"check": check.body(findings, facts), **sent.as_dict()}
    plan_view.show(shown, as_json=choice.as_json, seen=plan_view.NOTHING, more=checks, scripts=scripts)
    if not choice.as_json:
        from orchestrator.cli.console import page

        with page() as console:
            render(sent, console, plan_view.WIDTH)
            check.render_short(findings, facts, console)
    return plan


def first_scripts(spec: "Spec", project: str, bundle: str, agent: str) -> dict[str, str]:
    """Return the scripts of the first incarnation's machines by name."""
    from orchestrator.domain.ports import CloudAccount
    from orchestrator.domain.record import JobRecord, NodeRecord, Record
    from orchestrator.engine.blueprint import Blueprint

    blueprint = Blueprint(spec, CloudAccount(project, ""), "")
    record = Record(
        node=NodeRecord(incarnation=1, zone=spec.tpu.zones[0]), job=JobRecord(bundle=bundle, agent=agent)
    )
    return blueprint.all_scripts(record)
