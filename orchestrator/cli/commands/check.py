"""tpuctl check: what is likely to go wrong on a TPU, before money is spent."""

from dataclasses import replace

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options


@click.command("check")
@deployment_options
def command(choice: Choice) -> None:
    """
    Look through the deployment file and the code for what costs data, time or money on a TPU.

    Needs no credentials and no network, and starts nothing. Leaves with 2 when a finding says stop.
    """
    from orchestrator.advice.preflight.rules import preflight
    from orchestrator.app.session import read_spec
    from orchestrator.app.source_facts import gather
    from orchestrator.app.source_folder import source_folder
    from orchestrator.cli.views import check
    from orchestrator.config.shipped_catalog import load_catalog
    from orchestrator.ssh.local_data import size_of

    path, spec = read_spec(choice)
    facts = gather(source_folder(path, spec), skip=path)
    facts = replace(facts, data_bytes=size_of(spec.job.data, path.absolute().parent))
    findings = preflight(spec, load_catalog(), facts)
    check.show(spec.name, findings, facts, as_json=choice.as_json)
    if check.stops(findings):
        raise click.exceptions.Exit(2)
