"""A connection through Google's Identity-Aware Proxy: the standard input and output of a gcloud of its own."""

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

from orchestrator.domain.ports import Iap
from orchestrator.errors import NoGcloudError
from orchestrator.private_folders import private_folder

START_SECONDS = 30.0
"""Seconds that gcloud may take to start and to connect, besides the bound of every connection."""
INSTALL = "install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install), then: gcloud auth login"
_HINTS = {
    "4003": "allow Identity-Aware Proxy: tpuctl doctor   prints the firewall rule for your network (iap)",
    "4033": "ask for the role roles/iap.tunnelResourceAccessor on the project, then run the command again",
    "active account": "run: gcloud auth login",
}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class IapPipe:
    """
    Start gcloud for one connection; it is a socket to whoever speaks SSH over it.

    *folder* is where gcloud may keep what it needs for a local cloud, instead of the user's own settings.
    Raise NoGcloudError when gcloud is not installed here.
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
        # Two pairs: gcloud makes its input non-blocking, and its output must not become so with it.
        self._inward, its_input = socket.socketpair()
        self._outward, its_output = socket.socketpair()
        with its_input, its_output:
            self._process = subprocess.Popen(
                [program, *_words(target, port)], env=_environment(target, folder),
                stdin=its_input.fileno(), stdout=its_output.fileno(), stderr=self._said,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle, not gcloud's
            )  # fmt: skip
        self._ended = False
        self._end = weakref.finalize(self, _end, self._process)

    def send(self, data: bytes) -> int:
        """Send some of *data*, and return how much."""
        return self._inward.send(data)

    def recv(self, size: int) -> bytes:
        """Return what came, nothing at the end."""
        data = self._outward.recv(size)
        self._ended = self._ended or not data
        return data

    def settimeout(self, seconds: float | None) -> None:
        """Bound each `send` and `recv`."""
        self._inward.settimeout(seconds)
        self._outward.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """End the connection in the given direction."""
        for pipe in (self._inward, self._outward):
            with contextlib.suppress(OSError):
                pipe.shutdown(how)

    def close(self) -> None:
        """End gcloud."""
        self._end()
        self._inward.close()
        self._outward.close()

    def fault(self) -> tuple[str, str]:
        """Return why gcloud ended, in its own words, and what to do; nothing where it gave no reason."""
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
        """Say whether gcloud has ended; one whose output has ended is about to."""
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
        # A local cloud's certificate is its own, and gcloud has no way to be told of its authority alone.
        words += [f"--iap-tunnel-url-override={target.relay}"]
        words += ["--iap-tunnel-insecure-disable-websocket-cert-check"]
    return words


def _environment(target: Iap, folder: Path) -> dict[str, str]:
    """Return the environment of gcloud; for a local cloud without the user's login, settings and proxies."""
    environment = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    if not target.relay:
        return environment
    usable = {
        name: value for name, value in environment.items()
        if name.lower() not in _PROXIES and not name.startswith(("CLOUDSDK_AUTH", "CLOUDSDK_PROXY"))
    }  # fmt: skip
    private_folder(folder)
    token = folder / "token"
    # Another command may read it just now, so it must never be half written.
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
