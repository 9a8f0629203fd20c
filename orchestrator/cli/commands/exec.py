"""tpuctl exec: one command on every worker."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options

if TYPE_CHECKING:
    from orchestrator.ssh.run import Answer


@click.command("exec")
@deployment_options
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU workers.")
@click.option("--deadline", type=float, default=600.0, show_default=True, help="Seconds for each worker.")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
def command(
    choice: Choice, on_vm: bool, deadline: float,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """
    Run a command on all workers in parallel. Success means that it succeeded on every one of them.

    Each worker gets a line of its own at the end when one of them failed or was lost.
    """
    import shlex

    from orchestrator.app.session import Session
    from orchestrator.app.workers import the_vm, worker_hosts
    from orchestrator.cli.console import print_json
    from orchestrator.cli.views.event_lines import EventPrinter

    session = Session(choice, EventPrinter(as_json=choice.as_json))
    hosts = [the_vm(session)] if on_vm else worker_hosts(session)
    answers = session.ssh.ask(hosts, shlex.join(words) if len(words) > 1 else words[0], deadline)
    if choice.as_json:
        print_json("exec", {"results": [_row(answer) for answer in answers]})
    else:
        _show(answers)
    if any(answer.exit_code != 0 for answer in answers):
        raise click.exceptions.Exit(1)


def _row(answer: "Answer") -> dict[str, Any]:
    fault = answer.fault
    return {
        "machine": answer.host, "exit_code": answer.exit_code, "stdout": answer.stdout,
        "stderr": answer.stderr, "lost": fault is not None, "why": fault.message if fault else "",
        "code": fault.code if fault else None,
    }  # fmt: skip


def _show(answers: "list[Answer]") -> None:
    """Print what each machine said, each line with its name, and on failure how it ended on each of them."""
    for answer in answers:
        for line in answer.stdout.splitlines():
            put(f"{answer.host}: {line}")
        for line in answer.stderr.splitlines():
            put(f"{answer.host}: {line}", err=True)
    if all(answer.exit_code == 0 for answer in answers):
        return
    for answer in answers:
        put(f"{answer.host}: {_end(answer)}", err=True)
    for hint in sorted({answer.fault.hint for answer in answers if answer.fault and answer.fault.hint}):
        put(f"  next:  {hint}", err=True)


def _end(answer: "Answer") -> str:
    if answer.fault is None:
        return f"exit code {answer.exit_code}" if answer.exit_code else "ok"
    return f"lost, so whether it ended well is not known: {answer.fault.message} ({answer.fault.code})"
