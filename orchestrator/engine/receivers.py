"""
Who receives notices: a webhook, a service that Apprise knows, a program of this computer.

Addresses are secrets. No text of this module holds more of one than its host.
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

from orchestrator.contract.redaction import masked
from orchestrator.errors import TpuctlError, TransientError, UsageError
from orchestrator.planning.notices import Notice

SECONDS = 10.0
HOOK_SECONDS = 30.0
LAST_ERRORS = 400
"""Bytes of what a failing hook has written to standard error that are told."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CALLS = re.compile(r"@(?=everyone|here|channel|all\b|[!&]?\d)|\](?=\()", re.IGNORECASE)
"""What calls everybody of a chat, or lets a text lead elsewhere than it says (Discord, Mattermost)."""


def host_of(url: str) -> str:
    """Return what people may see of an address."""
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"


@dataclass(frozen=True)
class _Service:
    """Hold an address that is a secret, and the events that it receives; *label* tells several apart."""

    url: str
    label: str
    events: Collection[str]

    def wants(self, event: str) -> bool:
        """Say whether the event is among those asked for."""
        return event in self.events


class Webhook(_Service):
    """Post the notice as JSON; a redirect is refused, it could lead elsewhere."""

    @property
    def name(self) -> str:
        """Return the host only."""
        return f"webhook {self.label} ({host_of(self.url)})"

    def send(self, notice: Notice) -> None:
        """Post it; anything but 2xx is a failure."""
        host, safe = host_of(self.url), self.url.startswith("https://")
        if host == "?" or not (safe or (self.url.startswith("http://") and host in LOOPBACK)):
            raise UsageError(f"{self.name}: the address is no https URL", changed="nothing was sent")
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "tpuctl",
            "Idempotency-Key": notice.id,
        }
        try:
            request = urllib.request.Request(self.url, notice.to_json(), headers, method="POST")  # noqa: S310
            with _opener(host).open(request, timeout=SECONDS):
                return
        except urllib.error.HTTPError as error:
            # Without the cause: its text and traceback hold the address.
            raise TransientError(f"{self.name} answers {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or type(error).__name__
            raise TransientError(
                f"{self.name}: {type(why).__name__ if isinstance(why, Exception) else why}"
            ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
    ) -> None:
        """Follow nowhere: the answer then counts as a failure."""


def _opener(host: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if host in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class Apprise(_Service):
    """Tell one of the services that the library Apprise knows."""

    @property
    def name(self) -> str:
        """Return the service only: of such an address every other part may be a secret."""
        return f"apprise {self.label} ({self.url.partition('://')[0][:20]})"

    def send(self, notice: Notice) -> None:
        """Send title and text, which a machine may have written: no markup of it counts."""
        try:
            import apprise
        except ImportError:
            hint = "run: pip install 'tpuctl[notify]'"
            raise UsageError(f"{self.name}: apprise is not installed", hint=hint) from None
        service = apprise.Apprise()
        if not service.add(self.url):
            raise UsageError(f"{self.name}: Apprise does not know this address")
        title = f"{notice.deployment}: {notice.event}"
        # As text it is escaped for services that read markup; the rest is kept from being any.
        body = _CALLS.sub("\\g<0>\N{ZERO WIDTH SPACE}", notice.text)
        if not service.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT):
            raise TransientError(f"{self.name} did not take it")


@dataclass(frozen=True)
class Hook:
    """Run a program of this computer in *folder*, without a shell; the notice comes on its standard input."""

    event: str
    command: str
    folder: Path

    @property
    def name(self) -> str:
        """Return the event: a command line may hold anything."""
        return f"hook for {self.event}"

    def wants(self, event: str) -> bool:
        """Say whether it is the hook's event."""
        return event == self.event

    def send(self, notice: Notice) -> None:
        """Run it to its end, for at most 30 seconds; the end of its errors is told when it fails."""
        environment = {**os.environ, "TPUCTL_EVENT": notice.event, "TPUCTL_EVENT_ID": notice.id}
        # A file and no pipe: a child that the hook leaves behind may hold it open for ever.
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    shlex.split(self.command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    # A session of its own: Ctrl-C at the terminal must not kill a hook half way through its work.
                    stderr=errors, cwd=self.folder, env=environment, start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "no command"
                raise TransientError(f"{self.name} cannot be started: {why}") from None
            self._ended(process, notice, errors)

    def _ended(self, process: "subprocess.Popen[bytes]", notice: Notice, errors: IO[bytes]) -> None:
        """Give it the notice and wait for its end. Raise TransientError when it fails."""
        try:
            process.communicate(notice.to_json(), timeout=HOOK_SECONDS)
        except subprocess.TimeoutExpired:
            # The whole group: a shell script that is killed alone leaves its children with the pipe.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise TransientError(f"{self.name} did not end within {HOOK_SECONDS:g} s") from None
        if process.returncode:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_ERRORS))
            said = masked(" ".join(errors.read().decode("utf-8", "replace").split()))
            raise TransientError(
                f"{self.name} exited with status {process.returncode}" + (f": {said}" if said else "")
            )


def try_all(receivers: Sequence[Webhook | Apprise | Hook], notice: Notice) -> dict[str, TpuctlError | None]:
    """Tell everybody once, whatever the event; return what each of them met, by name."""
    found: dict[str, TpuctlError | None] = {}
    for one in receivers:
        try:
            one.send(notice)
            found[one.name] = None
        except TpuctlError as error:
            found[one.name] = error
    return found
