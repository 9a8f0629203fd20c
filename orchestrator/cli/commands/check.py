"""tpuctl check: what is likely to go wrong on a TPU, before money is spent."""

from dataclasses import replace
from pathlib import Path

import click

from orchestrator.cli.options import deployment_options


@click.command("check")
@deployment_options
def command(file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool) -> None:
    """
    Look through the deployment file and the code for what costs data, time or money on a TPU.

    Needs no credentials and no network, and starts nothing. Leaves with 2 when a finding says stop.
    """
    from orchestrator.advice.preflight.rules import preflight
    from orchestrator.app.session import Choice, read_spec
    from orchestrator.app.source_facts import gather
    from orchestrator.app.source_folder import source_folder
    from orchestrator.cli.views import check
    from orchestrator.config.shipped_catalog import load_catalog
    from orchestrator.ssh.local_data import size_of

    path, spec = read_spec(Choice(file, settings, cloud, as_json))
    facts = gather(source_folder(path, spec), skip=path)
    facts = replace(facts, data_bytes=size_of(spec.job.data, path.absolute().parent))
    findings = preflight(spec, load_catalog(), facts)
    check.show(spec.name, findings, facts, as_json=as_json)
    if check.stops(findings):
        raise click.exceptions.Exit(2)
