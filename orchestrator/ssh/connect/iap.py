"""Connect through Identity-Aware Proxy, over the standard input and output of a gcloud process."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO

from orchestrator.domain.remote import Iap
from orchestrator.errors import NoGcloudError
from orchestrator.private_folders import private_folder

START_TIMEOUT = 30.0
"""Seconds added to the time limit of a connection, for gcloud to start and connect."""
INSTALL = "install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install), then: gcloud auth login"
# What gcloud prints has no other codes; a text that none of these is in has no hint.
_HINTS = {
    "4003": "allow Identity-Aware Proxy: tpuctl doctor   prints the firewall rule for your network (iap)",
    "4033": "ask for the role roles/iap.tunnelResourceAccessor on the project, then run the command again",
    "active account": "run: gcloud auth login",
}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class IapPipe:
    """
    A gcloud process that carries one connection, with the methods of a socket that paramiko needs.

    *folder* is gcloud's configuration folder for a local cloud, instead of the user's own. Raise
    NoGcloudError if gcloud is not installed.
    """

    def __init__(self, target: Iap, port: int, folder: Path) -> None:
        program = shutil.which("gcloud")
        if program is None:
            raise NoGcloudError(
                f"{target.instance} has no external address, so it is reached through Identity-Aware Proxy. "
                "This needs gcloud, which is not installed on this computer",
                hint=INSTALL,
            )
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the connection
        # Two socket pairs: gcloud makes its standard input non-blocking, which must not apply to its output.
        self._inward, its_input = socket.socketpair()
        self._outward, its_output = socket.socketpair()
        with its_input, its_output:
            self._process = subprocess.Popen(
                [program, *_words(target, port)], env=_environment(target, folder),
                stdin=its_input.fileno(), stdout=its_output.fileno(), stderr=self._said,
                start_new_session=True,  # so that Ctrl-C in the terminal reaches only tpuctl
            )  # fmt: skip
        self._ended = False
        self._end = weakref.finalize(self, _end, self._process)

    def send(self, data: bytes) -> int:
        """Send the beginning of *data*; return the number of bytes sent."""
        return self._inward.send(data)

    def recv(self, size: int) -> bytes:
        """Return received bytes, b"" at the end of the stream."""
        data = self._outward.recv(size)
        self._ended = self._ended or not data
        return data

    def settimeout(self, timeout: float | None) -> None:
        """Set the timeout of `send` and `recv` in seconds."""
        self._inward.settimeout(timeout)
        self._outward.settimeout(timeout)

    def shutdown(self, how: int) -> None:
        """Shut down *how* (socket.SHUT_*) on both pipes."""
        for pipe in (self._inward, self._outward):
            with contextlib.suppress(OSError):
                pipe.shutdown(how)

    def close(self) -> None:
        """End gcloud and close the pipes."""
        self._end()
        self._inward.close()
        self._outward.close()

    def refusal(self) -> tuple[str, str]:
        """Return gcloud's error message and a hint; both are empty if it still runs or printed nothing."""
        if not self._over():
            return "", ""
        self._said.seek(0)
        text = self._said.read().decode(errors="replace")
        errors = re.findall(r"^ERROR: (.+)$", text, re.MULTILINE) or text.strip().splitlines()[-1:]
        if not errors:
            return "", ""
        words = str(errors[-1]).strip()
        hint = next((hint for mark, hint in _HINTS.items() if mark in words), "")
        return f"gcloud says: {words}", hint

    def _over(self) -> bool:
        """Return whether gcloud has ended; after the end of its output, wait up to 1 s for it."""
        if self._ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        return self._process.poll() is not None


def _words(target: Iap, port: int) -> list[str]:
    words = [
        "compute", "start-iap-tunnel", target.instance, str(port), "--listen-on-stdin",
        f"--project={target.project}", f"--zone={target.zone}", "--verbosity=error",
    ]  # fmt: skip
    if target.relay:
        # The local cloud signs its own certificate, and gcloud cannot be given a CA for this URL alone.
        words += [f"--iap-tunnel-url-override={target.relay}"]
        words += ["--iap-tunnel-insecure-disable-websocket-cert-check"]
    return words


def _environment(target: Iap, folder: Path) -> dict[str, str]:
    """Return gcloud's environment; for a local cloud without the user's login and proxies."""
    environment = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    if not target.relay:
        return environment
    usable = {
        name: value for name, value in environment.items()
        if name.lower() not in _PROXIES and not name.startswith(("CLOUDSDK_AUTH", "CLOUDSDK_PROXY"))
    }  # fmt: skip
    private_folder(folder)
    token = folder / "token"
    # A parallel command may read the token now, so it is replaced by a rename.
    fresh = folder / f"token.{os.getpid()}.{threading.get_ident()}"
    fresh.write_text("local-cloud")
    fresh.replace(token)
    return {
        **usable,
        "CLOUDSDK_CONFIG": str(folder / "config"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token),
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
