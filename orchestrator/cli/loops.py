"""What `watch` and `fleet watch` have in common: many loops until Ctrl-C, and one that runs on the VM."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.loop.on_vm import start_on_vm, stop_on_vm, with_state
from orchestrator.app.loop.watch_all import WatchAll
from orchestrator.cli.graceful_stop import graceful_stop
from orchestrator.cli.views import watch as view


def watch_until_stopped(loops: WatchAll[Any], *, as_json: bool, again: str) -> NoReturn:
    """Watch several deployments until their end or Ctrl-C, and exit with the status of the worst end."""
    view.say_names(loops.names)
    with suppress(KeyboardInterrupt), graceful_stop(loops.stop):
        loops.run()
    code = view.show_all(loops.ended, stopped=loops.stopped, as_json=as_json, again=again)
    raise click.exceptions.Exit(code)


def watch_on_vm(
    choice: Choice, reporter: Reporter, session: Session | None = None,
    members: Callable[[], Sequence[str]] = tuple, *, stop: bool, command: str,
) -> None:  # fmt: skip
    """Let the loop of *command* run on the VM, with the keys of *members*, or stop it there; show which it was."""
    session = session or Session(choice, reporter)
    if stop:
        found = with_state(session, stop_on_vm(choice, reporter, session))
    else:
        found = start_on_vm(choice, reporter, session, members())
    view.show_on_vm(found, as_json=choice.as_json, command=command)
