"""Show the machines' answers to a command."""

from collections.abc import Sequence
from typing import Any

from orchestrator.cli.console import print_json, put
from orchestrator.domain.remote import CommandAnswer


def as_dict(answer: CommandAnswer) -> dict[str, Any]:
    """Return the answer as in `--json`."""
    error = answer.error
    return {
        "machine": answer.host, "exit_code": answer.exit_code, "stdout": answer.stdout,
        "stderr": answer.stderr, "unknown_result": error is not None, "message": error.message if error else "",
        "code": error.code if error else None,
    }  # fmt: skip


def show(answers: Sequence[CommandAnswer], *, as_json: bool) -> None:
    """Print the output of each machine with its name, and after a failure the status of each."""
    if as_json:
        print_json("exec", {"results": [as_dict(answer) for answer in answers]})
        return
    for answer in answers:
        for line in answer.stdout.splitlines():
            put(f"{answer.host}: {line}")
        for line in answer.stderr.splitlines():
            put(f"{answer.host}: {line}", err=True)
    if all(answer.exit_code == 0 for answer in answers):
        return
    for answer in answers:
        put(f"{answer.host}: {_end(answer)}", err=True)
    for hint in sorted({answer.error.hint for answer in answers if answer.error and answer.error.hint}):
        put(f"  next:  {hint}", err=True)


def _end(answer: CommandAnswer) -> str:
    if answer.error is None:
        return f"exit code {answer.exit_code}" if answer.exit_code else "ok"
    return f"lost, so whether it ended well is not known: {answer.error.message} ({answer.error.code})"
