"""
tpuctl exec: one command on every worker.
"""

from pathlib import Path

import click

from orchestrator.cli.options import deployment_options


@click.command("exec")
@deployment_options
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU workers.")
@click.option("--deadline", type=float, default=600.0, show_default=True, help="Seconds for each worker.")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, on_vm: bool, deadline: float,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """
    Run a command on all workers in parallel. Success means that it succeeded on every one of them.
    """
    import shlex

    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.machines import the_vm, worker_hosts
    from orchestrator.cli.output import print_json
    from orchestrator.cli.wiring import Choice, Session

    session = Session(Choice(file, settings, cloud, as_json), EventPrinter(as_json=as_json))
    hosts = [the_vm(session)] if on_vm else worker_hosts(session)
    results = session.ssh.run(hosts, shlex.join(words) if len(words) > 1 else words[0], deadline)
    pairs = list(zip(hosts, results, strict=True))
    if as_json:
        rows = [
            {"machine": h.name, "exit_code": r.exit_code, "stdout": r.stdout, "stderr": r.stderr}
            for h, r in pairs
        ]
        print_json("exec", {"results": rows})
    else:
        for host, done in pairs:
            for line in done.stdout.splitlines():
                click.echo(f"{host.name}: {line}")
            for line in done.stderr.splitlines():
                click.echo(f"{host.name}: {line}", err=True)
            if done.exit_code:
                click.echo(f"{host.name}: exit code {done.exit_code}", err=True)
    if any(r.exit_code for r in results):
        raise click.exceptions.Exit(1)
