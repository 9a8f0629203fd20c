"""What passes find, told to people. It never ends the loop, nor holds it up: the job matters more."""

from collections.abc import Callable, Sequence

from orchestrator.domain.events import Event
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.outbox import Outbox, Postman, Receiver
from orchestrator.engine.reconcile import Pass
from orchestrator.errors import LeaseHeldError, TpuctlError
from orchestrator.planning.notices import due, stopped

LAST_SECONDS = 15.0
"""How long the end of a command waits for what is still to be told."""


class Notifier:
    """
    Tell what passes find. Without anybody to tell it does nothing.

    *deployment* and *receivers* are asked for at the first pass: secrets are read then. When they cannot be,
    that is said once and the loop goes on without notifications. *say* is told what was left untold.
    """

    def __init__(
        self, deployment: Callable[[], Deployment], receivers: Callable[[], Sequence[Receiver]],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._deployment = deployment
        self._receivers = receivers
        self._talk = say
        self._postman: Postman | None = None
        self._tried = False

    def __enter__(self) -> "Notifier":  # noqa: PYI034 (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def seen(self, result: Pass) -> None:
        """Take one pass. Never raises: a fault in telling must not end the loop."""
        try:
            self._tell(result)
        except Exception as error:  # Whatever it is, the job matters more.
            self._say(f"nobody is told of events: {type(error).__name__}")
            self._postman = None

    def _tell(self, result: Pass) -> None:
        postman = self._open()
        if postman is None:
            return
        deployment, plan, world = self._deployment(), result.plan, result.world
        record = deployment.records.current
        spent = deployment.spent(record, world.seen_at)
        postman.add(due(deployment.spec, world, record, plan.outcome, plan.reason, spent))

    def stopped(self, error: TpuctlError) -> None:
        """Tell that the loop ends with *error*; that another command has taken over is no news."""
        if self._postman is not None and not isinstance(error, LeaseHeldError):
            deployment = self._deployment()
            now = deployment.clock.now()
            self._postman.add([stopped(deployment.spec, deployment.records.current, error, now)])

    def end(self) -> None:
        """Give the last notices a moment to go out, and say what is left for the next loop."""
        left = self._postman.end(LAST_SECONDS) if self._postman else ()
        self._postman, self._tried = None, False
        if left:
            names = ", ".join(notice.event for notice in left)
            self._talk(f"not told yet: {names}; the next `tpuctl watch` tells it (try: tpuctl notify test)")

    def _say(self, text: str) -> None:
        deployment = self._deployment()
        deployment.sink(Event(deployment.clock.now(), "failure", text))

    def _open(self) -> Postman | None:
        if self._tried:
            return self._postman
        self._tried = True
        try:
            found = self._receivers()
        except TpuctlError as error:
            self._say(f"nobody is told of events: {error.message} ({error.code})")
            return None
        if found:
            deployment = self._deployment()
            self._postman = Postman(Outbox(deployment.cloud.store, found, deployment.clock, deployment.sink))
        return self._postman
