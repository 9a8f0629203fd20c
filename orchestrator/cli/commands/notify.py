"""tpuctl notify: try who is told when something happens."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options
from orchestrator.errors import TpuctlError, UsageError

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.domain.spec import Spec
    from orchestrator.engine.outbox import Postman
    from orchestrator.engine.receivers import Apprise, Hook, Webhook
    from orchestrator.engine.reconcile import Pass

UNTOLD = "TPUCTL_UNTOLD"
"""Set in a rehearsal: what happens there is nobody's news."""
LAST_SECONDS = 15.0
"""How long the end of a command waits for what is still to be told."""


@click.group("notify", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Tell people: webhooks, other services, programs of this computer (`notify` in the deployment file)."""


@command.command("test")
@deployment_options
def test(choice: Choice) -> None:
    """Send a made-up event to everybody at once, and say who took it. Leaves with 1 when somebody did not."""
    from orchestrator.app.session import read_spec
    from orchestrator.cli.console import print_json
    from orchestrator.clock import SystemClock
    from orchestrator.engine.receivers import try_all
    from orchestrator.planning.notices import Notice

    path, spec = read_spec(choice)
    receivers = receivers_of(spec, path.parent, choice.cloud)
    if not receivers:
        raise UsageError(
            "the deployment file tells nobody", hint="add `notify: {webhooks: [secret://NAME]}`",
            unchanged="nothing was sent",
        )  # fmt: skip
    now = SystemClock().now()
    told = try_all(
        receivers, Notice(f"{spec.name}-test-{now:.0f}", "test", now, spec.name, "a test of tpuctl")
    )
    if choice.as_json:
        results = [
            {"receiver": name, "told": e is None, "why": e.message if e else ""} for name, e in told.items()
        ]
        print_json("notify", {"results": results})
    for name, error in told.items() if not choice.as_json else ():
        put(f"{name}: {'told' if error is None else f'not told: {error.message}'}")
        if error is not None and error.hint:
            put(f"  next:  {error.hint}")
    if any(told.values()):
        raise click.exceptions.Exit(1)


def receivers_of(
    spec: "Spec", folder: Path, cloud: str, *, hooks: bool = True
) -> "list[Webhook | Apprise | Hook]":
    """Return everybody who is told. Raise TpuctlError when an address cannot be read."""
    from orchestrator.engine.receivers import Apprise, Hook, Webhook

    notify = spec.notify
    programs = [Hook(event, line, folder) for event, line in notify.hooks.items()] if hooks else []
    addresses: list[tuple[type[Webhook | Apprise], tuple[str, ...]]] = [
        (Webhook, notify.webhooks),
        (Apprise, notify.apprise),
    ]
    return [
        *(
            kind(_address(text, spec, cloud), str(number), frozenset(notify.events))
            for kind, texts in addresses
            for number, text in enumerate(texts, 1)
        ),
        *programs,
    ]


def _address(text: str, spec: "Spec", cloud: str) -> str:
    """Return what a reference stands for."""
    from orchestrator.cli.commands.secret import open_manager
    from orchestrator.config.rules.notify import ENVIRONMENT
    from orchestrator.domain.secret_refs import reference

    ref = reference(text)
    if ref is not None:
        return open_manager(spec.project, cloud)[0].read(ref).strip()
    if text.startswith(ENVIRONMENT):
        name = text.removeprefix(ENVIRONMENT)
        if not os.environ.get(name):
            raise UsageError(f"notify: the variable {name} is not set", hint=f"export {name}=https://...")
        return os.environ[name].strip()
    return text


class Notifier:
    """
    Tell what passes find. Without anybody to tell it does nothing.

    An address that cannot be read is said once; the loop goes on without notifications.
    """

    def __init__(self, session: "Session", *, hooks: bool) -> None:
        self._session = session
        self._hooks = hooks
        self._postman: Postman | None = None
        self._tried = False

    def __enter__(self) -> "Notifier":  # noqa: PYI034 (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def seen(self, result: "Pass") -> None:
        """Take one pass. Never raises: a fault in telling must not end the loop."""
        try:
            self._tell(result)
        except Exception as error:  # Whatever it is, the job matters more.
            self._say(f"nobody is told of events: {type(error).__name__}")
            self._postman = None

    def _tell(self, result: "Pass") -> None:
        from orchestrator.planning.notices import due

        postman = self._open()
        if postman is None:
            return
        session = self._session
        record, plan, world = session.records.current, result.plan, result.world
        spent = session.cost_at_most(record, world.seen_at)
        postman.add(due(session.spec, world, record, plan.outcome, plan.reason, spent))

    def stopped(self, error: TpuctlError) -> None:
        """Tell that the loop ends with *error*; that another command has taken over is no news."""
        from orchestrator.errors import LeaseHeldError
        from orchestrator.planning.notices import stopped

        postman, session = self._postman, self._session
        if postman is not None and not isinstance(error, LeaseHeldError):
            postman.add([stopped(session.spec, session.records.current, error, session.clock.now())])

    def end(self) -> None:
        """Give the last notices a moment to go out, and say what is left for the next loop."""
        from orchestrator.cli.console import say

        left = self._postman.end(LAST_SECONDS) if self._postman else ()
        self._postman, self._tried = None, False
        if left:
            names = ", ".join(notice.event for notice in left)
            say(f"not told yet: {names}; the next `tpuctl watch` tells it (try: tpuctl notify test)")

    def _say(self, text: str) -> None:
        from orchestrator.domain.events import Event

        self._session.sink(Event(self._session.clock.now(), "failure", text))

    def _open(self) -> "Postman | None":
        from orchestrator.engine.outbox import Outbox, Postman

        if self._tried:
            return self._postman
        self._tried = True
        session, notify = self._session, self._session.spec.notify
        if not (notify.webhooks or notify.apprise or notify.hooks) or os.environ.get(UNTOLD):
            return None
        try:
            found = receivers_of(session.spec, session.path.parent, session.choice.cloud, hooks=self._hooks)
        except TpuctlError as error:
            self._say(f"nobody is told of events: {error.message} ({error.code})")
            return None
        if found:
            self._postman = Postman(Outbox(session.cloud.store, found, session.clock, session.sink))
        return self._postman
