"""
Send notifications to a webhook, to a service that Apprise supports, or to a program on this computer.

Addresses are secrets: texts of this module contain the host only.
"""

import http.client
import os
import re
import shlex
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from orchestrator.contract.secrets.redaction import masked
from orchestrator.errors import TpuctlError, TransientError, UsageError
from orchestrator.planning.notifications import Notification

TIMEOUT = 10.0
"""Seconds for a receiver to answer; it is tried again later."""
HOOK_TIMEOUT = 30.0
"""Seconds for a program of the user; one that hangs is killed and tried again."""
LAST_ERRORS = 400
"""Most bytes of a failing hook's standard error to show."""
_TRY = "then try it: tpuctl notify test"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CALLS = re.compile(r"@(?=everyone|here|channel|all\b|[!&]?\d)|\](?=\()", re.IGNORECASE)
"""Mentions of a whole chat, and link markup that shows another target than it opens (Discord, Mattermost)."""


def host_of(url: str) -> str:
    """Return the host of *url*, the only part that may be shown."""
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"


@dataclass(frozen=True)
class _Service:
    """A secret address and the kinds that it receives; *label* tells several receivers apart."""

    url: str
    label: str
    kinds: Collection[str]

    def wants(self, notification: Notification) -> bool:
        """Return whether this receiver gets notifications of its kind."""
        return notification.kind in self.kinds


class Webhook(_Service):
    """Post the notification as JSON. Redirects are refused, because they would send the body to another host."""

    @property
    def name(self) -> str:
        """Return the host only."""
        return f"webhook {self.label} ({host_of(self.url)})"

    def send(self, notification: Notification) -> None:
        """Post it; raise TpuctlError for any answer but 2xx."""
        host, safe = host_of(self.url), self.url.startswith("https://")
        if host == "?" or not (safe or (self.url.startswith("http://") and host in LOOPBACK)):
            raise UsageError(
                f"{self.name}: the address is not an https URL", hint=f"name one that begins with https://; {_TRY}",
                changed="nothing was sent",
            )  # fmt: skip
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "tpuctl",
            "Idempotency-Key": notification.id,
        }
        try:
            request = urllib.request.Request(self.url, notification.sent_json(), headers, method="POST")  # noqa: S310
            with _opener(host).open(request, timeout=TIMEOUT):
                return
        except urllib.error.HTTPError as error:
            # Without the cause, because its text and traceback contain the address.
            hint = f"compare its address with the service's (redirects are not followed); {_TRY}"
            raise TransientError(
                f"{self.name} answers {error.code}", hint=hint, changed="the deployment was not touched"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = getattr(error, "reason", None) or type(error).__name__
            raise TransientError(
                f"{self.name}: {type(cause).__name__ if isinstance(cause, Exception) else cause}",
                hint=f"check the network and the host's name; {_TRY}",
                changed="the deployment was not touched",
            ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
    ) -> None:
        """Refuse every redirect, so that the answer counts as a failure."""


def _opener(host: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if host in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class Apprise(_Service):
    """Send to a service that the library Apprise supports."""

    @property
    def name(self) -> str:
        """Return the service's name only: every other part of the address may be a secret."""
        return f"apprise {self.label} ({self.url.partition('://')[0][:20]})"

    def send(self, notification: Notification) -> None:
        """
        Send title and message, with markup and mentions disarmed, because a machine may have written them.

        Raise UsageError if Apprise is not installed or does not know the address, TransientError if it fails.
        """
        try:
            import apprise
        except ImportError:
            hint = "run: pip install 'tpuctl[notify]'"
            raise UsageError(
                f"{self.name}: apprise is not installed", hint=hint, changed="nothing was sent"
            ) from None
        service = apprise.Apprise()
        if not service.add(self.url):
            hint = f"write the address as Apprise's page on that service does; {_TRY}"
            raise UsageError(
                f"{self.name}: Apprise does not know this address", hint=hint, changed="nothing was sent"
            )
        title = f"{notification.deployment}: {notification.kind}"
        # Apprise escapes markup in a TEXT body; a zero-width space breaks mentions.
        body = _CALLS.sub("\\g<0>\N{ZERO WIDTH SPACE}", notification.message)
        if not service.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT):
            hint = f"check the token in its address, and the network; {_TRY}"
            raise TransientError(
                f"{self.name} did not take it", hint=hint, changed="the deployment was not touched"
            )


@dataclass(frozen=True)
class Hook:
    """Run a program on this computer in *folder*, without a shell, with the notification on its stdin."""

    kind: str
    command: str
    folder: Path

    @property
    def name(self) -> str:
        """Return the kind only: a command line may contain secrets."""
        return f"hook for {self.kind}"

    def wants(self, notification: Notification) -> bool:
        """Return whether it is of the kind that this hook is configured for."""
        return notification.kind == self.kind

    def send(self, notification: Notification) -> None:
        """Run it for at most HOOK_TIMEOUT; raise TransientError with the end of its stderr if it fails."""
        environment = {
            **os.environ,
            "TPUCTL_NOTIFICATION_KIND": notification.kind,
            "TPUCTL_NOTIFICATION_ID": notification.id,
        }
        # A file, not a pipe: a child process of the hook could keep a pipe open for ever.
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    shlex.split(self.command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    # A session of its own: Ctrl-C at the terminal must not kill a hook in the middle of its work.
                    stderr=errors, cwd=self.folder, env=environment, start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                message = error.strerror if isinstance(error, OSError) else "no command"
                hint = f"its first word is a program, looked up in {self.folder} and on PATH; {_TRY}"
                raise TransientError(
                    f"{self.name} cannot be started: {message}", hint=hint, changed="nothing was run"
                ) from None
            self._ended(process, notification, errors)

    def _ended(
        self, process: "subprocess.Popen[bytes]", notification: Notification, errors: IO[bytes]
    ) -> None:
        """Pass the notification to the process and wait for its end. Raise TransientError if it fails."""
        try:
            process.communicate(notification.sent_json(), timeout=HOOK_TIMEOUT)
        except subprocess.TimeoutExpired:
            # Kill the whole group: children of a killed shell script would keep running.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            hint = f"it was killed with all that it had started; let it do less; {_TRY}"
            raise TransientError(
                f"{self.name} did not end within {HOOK_TIMEOUT:g} s",
                hint=hint,
                changed="what it did before stays",
            ) from None
        if process.returncode:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_ERRORS))
            said = masked(" ".join(errors.read().decode("utf-8", "replace").split()))
            raise TransientError(
                f"{self.name} exited with status {process.returncode}" + (f": {said}" if said else ""),
                hint=f"run it by hand in {self.folder}; {_TRY}",
                changed="what it did before stays",
            )


def try_all(
    receivers: Sequence[Webhook | Apprise | Hook], notification: Notification
) -> dict[str, TpuctlError | None]:
    """Send to each receiver once, whatever its kinds; return its error, or None, by name."""
    found: dict[str, TpuctlError | None] = {}
    for one in receivers:
        try:
            one.send(notification)
            found[one.name] = None
        except TpuctlError as error:
            found[one.name] = error
    return found
