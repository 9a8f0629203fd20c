"""What `watch` and `fleet watch` have in common: many loops until Ctrl-C, and one that moves to the VM or back."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.loop.hand_over import hand_over, take_back
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


def move_loop(
    choice: Choice, reporter: Reporter, session: Session | None = None,
    parts: Callable[[], Sequence[str]] = tuple, *, back: bool, command: str,
) -> None:  # fmt: skip
    """Let the loop of *command* run on the VM, with the keys of *parts*, or end it there; show which it was."""
    moved = take_back(choice, reporter, session) if back else hand_over(choice, reporter, session, parts())
    view.show_moved(moved, as_json=choice.as_json, command=command)
