"""Provide a sandbox: a local cloud of its own, and public commands run on it as a user would."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, Style
from orchestrator.app.context.signals import handled
from orchestrator.app.deployment.session import Session
from orchestrator.app.status.status import status_now
from orchestrator.clock import SystemClock, wait_until
from orchestrator.config.load import FILE_NAME
from orchestrator.domain.status import DeploymentStatus
from orchestrator.emulator import control
from orchestrator.emulator.address import Address, disown, own
from orchestrator.emulator.machines import start_module
from orchestrator.errors import LocalCloudError, TpuctlError
from orchestrator.google.lean_imports import client_class
from orchestrator.private_folders import private_folder

POLL_SECONDS = 5.0
"""Seconds between two checks, during a command, that the local cloud still runs."""
PASSED_ON = frozenset({"TPUCTL_VENV_CACHE"})
"""Our variables that commands on a sandbox inherit, because they do not affect a deployment."""


class CommandFailedError(Exception):
    """A command failed with exit status *code* and has printed the reason."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a command failed with {code}")
        self.code = code


class Sandbox:
    """
    A local cloud in *folder*, and commands that run on it.

    *work* is the folder of the deployment file; *talk* redirects the commands' output to stderr. The sandbox
    changes this process's environment, which the commands inherit.
    """

    def __init__(self, folder: Path, work: Path, reporter: Reporter, *, talk: bool = False) -> None:
        self.folder = folder
        self.work = work
        self._reporter = reporter
        self._settings: tuple[str, ...] = ()
        self._output = sys.stderr if talk else None
        # A login or an address of Google's in the environment could lead a rehearsal to the real cloud.
        names = [n for n in os.environ if n.startswith(("TPUCTL_", "GOOGLE_", "CLOUDSDK_"))]
        for name in set(names) - PASSED_ON:
            del os.environ[name]
        os.environ.update(
            TPUCTL_LOCAL_DIR=str(self.cloud), TPUCTL_CLOUD="local", TPUCTL_NOTIFICATIONS_OFF="1"
        )
        self.address: Address | None = None
        private_folder(self.cloud)
        # After a SIGKILL of this process `clear` does not run.
        own(self.cloud)

    @property
    def cloud(self) -> Path:
        """Return the folder of the local cloud."""
        return self.folder / "cloud"

    def take(self, settings: Sequence[str]) -> None:
        """Use other settings from now on, for another deployment."""
        self._settings = tuple(settings)
        self.__dict__.pop("session", None)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the settings as flags for a command."""
        return tuple(part for setting in self._settings for part in ("--set", setting))

    def say(self, text: str, style: Style = "title") -> None:
        """Report one line of the sandbox's own."""
        self._reporter.say(text, style=style)

    def scene(self, title: str) -> None:
        """Announce a part of the rehearsal."""
        self.say(f"\n== {title}")

    def start_cloud(self, *words: str) -> None:
        """Start the local cloud, and remember its process for `must_have_cloud`."""
        self.run("local", "start", *words)
        self.address = control.running()

    def run(self, *words: str) -> None:
        """Run one command. Raise CommandFailedError when it fails."""
        code = self.call(*words)
        if code != 0:
            raise CommandFailedError(code)

    def run_program(self, *words: str) -> None:
        """Print and run a program that is not tpuctl, in the folder of the deployment file."""
        self.say(f"$ {shlex.join(words)}", style="command")
        subprocess.run(words, cwd=self.work, check=True)

    def call(self, *words: str) -> int:
        """Run one command; return its exit status. Raise LocalCloudError if the local cloud ends meanwhile."""
        process = self.start(*words)
        while True:
            try:
                return process.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                try:
                    self.must_have_cloud()
                except LocalCloudError:
                    # It would wait minutes for a cloud that does not return.
                    self.end(process)
                    raise

    def must_have_cloud(self) -> None:
        """Raise LocalCloudError if the local cloud that was started has ended."""
        # Another process at its place has none of the machines.
        if self.address is not None and control.running() != self.address:
            raise LocalCloudError(
                "the local cloud of this rehearsal is gone: its process ended",
                hint="run `tpuctl rehearse` again; if it happens again, see `tpuctl doctor`",
                changed="the deployment itself was not touched",
            )

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Print and start one command."""
        self._show(words)
        where = self.work if self.work.exists() else self.folder
        # Without a terminal: `up` would ask for confirmation of a price that is not billed.
        return subprocess.Popen(
            start_module.command("orchestrator", *words),
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
        )

    def run_beside(self, *words: str) -> None:
        """Run one command while another one draws its live line. Raise CommandFailedError if it fails."""
        self._show(words, beside=True)
        # Captured, since the live line of the other command would break its lines.
        done = subprocess.run(
            start_module.command("orchestrator", *words), cwd=self.work,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in done.stderr.splitlines():
            self._say_beside(line, style="")
        if done.returncode != 0:
            raise CommandFailedError(done.returncode)

    def _say_beside(self, text: str, style: Style) -> None:
        # A live line with a bar erases the line above its own at the next redraw: leave it an empty one.
        self.say(f"{text}\n" if sys.stderr.isatty() else text, style=style)

    def _show(self, words: tuple[str, ...], *, beside: bool = False) -> None:
        shown = " ".join(word if word != str(self.work) else "." for word in words)
        text = f"$ tpuctl {shown}"
        if beside:
            self._say_beside(text, "command")
        else:
            self.say(text, style="command")

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """Make sure that a started command has ended."""
        if process.poll() is None:
            # SIGTERM first, so that it releases its lease; otherwise the next command would wait for that.
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def warm_up(self) -> None:
        """Import Google's clients while the first commands run, so that the first observation is fast."""
        names = ("google.cloud.storage", "google.cloud.tpu_v2", "fabric")

        def load() -> None:
            for name in names:
                import_module(name)
            client_class("instances", "InstancesClient")

        threading.Thread(target=load, daemon=True).start()

    def status(self) -> DeploymentStatus | None:
        """Return the status of the deployment, None if it cannot be observed."""
        try:
            self.session.records.load()
            return status_now(self.session)
        except TpuctlError:
            return None

    @cached_property
    def session(self) -> Session:
        """Return the session for observing the deployment."""
        return Session(Choice(self.work / FILE_NAME, self._settings, "local"), Reporter())

    def wait_for_step(
        self, watcher: "subprocess.Popen[bytes]", step: int, timeout: float, other_than: str = ""
    ) -> tuple[str, int]:
        """
        Wait until the job reaches *step* on a READY node; return that node's name and the job's step.

        The name is "" if the job was done before. Raise CommandFailedError if `watch` failed, TpuctlError
        after *timeout* seconds.
        """

        def reached() -> tuple[str, int] | None:
            if watcher.poll() is not None:
                return ("", 0)
            found, at = _ready(self.status())
            return (found, at) if found and found != other_than and at >= step else None

        # Real processes, so this wait is real time.
        found = wait_until(reached, SystemClock(), timeout, 0.3, longest=0.3)
        if found is not None and found[0]:
            return found
        if watcher.poll() is not None:
            if watcher.returncode:
                raise CommandFailedError(watcher.returncode)
            return "", 0
        raise TpuctlError(
            f"the job did not reach step {step}",
            hint="run it again with --keep and look at `tpuctl logs`",
            changed="all that was made here is removed again",
        )

    def keep(self) -> list[str]:
        """Let the local cloud outlive this process; return what `clear` would have left behind: nothing."""
        disown(self.cloud)
        return []

    def clear(self) -> list[str]:
        """Remove the local cloud, its machines and the folder; report and return what is left."""
        with signals_ignored():
            options = self.cloud / "options.json"
            marker = json.loads(options.read_text())["cloud_id"] if options.exists() else ""
            subprocess.run(
                start_module.command("orchestrator", "local", "reset"), cwd=self.folder,
                capture_output=True, check=False,
            )  # fmt: skip
            leftovers = [*self._mounts(), *_processes(marker)]
            shutil.rmtree(self.folder, ignore_errors=True)
            leftovers += [str(self.folder)] if self.folder.exists() else []
        if leftovers:
            self.say(f"left behind: {', '.join(leftovers)}")
        return leftovers

    def _mounts(self) -> list[str]:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        return [mount for mount in mounts if mount.startswith(str(self.folder))]


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP in the block like Ctrl-C, so that its clean-up runs."""
    # By default they end Python at once and leave the machines, which are processes, running.
    with handled((signal.SIGTERM, signal.SIGHUP), _interrupt):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore the terminal's signals in the block and in the commands that it starts."""
    # Child processes inherit ignored signals, so the clean-up's commands run to their end, too.
    with handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _processes(marker: str) -> list[str]:
    """Return the processes marked as a local cloud's."""
    mark = marker.encode()
    numbers = [p for p in Path("/proc").iterdir() if p.name.isdigit()] if mark else []
    return [f"process {p.name}" for p in numbers if mark in _environ(p)]


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _ready(status: DeploymentStatus | None) -> tuple[str, int]:
    """Return the name of a READY node ("" if none) and its job's step."""
    if status is None:
        return "", 0
    ready = [r.name for r in status.resources if r.kind == "tpu" and r.state == "READY"]
    steps = [w.step or 0 for w in status.workers if w.phase == "run"]
    return (ready[0] if len(ready) == 1 else ""), min(steps, default=0)
