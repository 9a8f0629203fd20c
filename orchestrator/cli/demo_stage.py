"""
The demo's stage: a folder, a local cloud of its own, and the public commands run as a user would.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import click

from orchestrator.cli.live import wanted
from orchestrator.cli.output import say
from orchestrator.cli.status import look
from orchestrator.cli.wiring import Choice, Session
from orchestrator.config.load import FILE_NAME
from orchestrator.errors import TpuctlError

class Stage:
    """
    Run commands in a folder and on a local cloud of their own, and look at their effects as `status` does.

    It changes the environment of this process, which the commands inherit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        for name in [n for n in os.environ if n.startswith(("TPUCTL_", "GOOGLE_", "CLOUDSDK_"))]:
            del os.environ[name]
        os.environ.update(TPUCTL_LOCAL_DIR=str(folder / "cloud"), TPUCTL_CLOUD="local")
        self._marker = ""

    def say(self, text: str, style: str = "bold") -> None:
        """
        Print one line of the demo's own, over the live line of a command that runs meanwhile.
        """
        if wanted():
            click.echo("\r\x1b[2K", err=True, nl=False)
        say(text, style=style)

    def scene(self, title: str) -> None:
        """
        Announce a part of the demo.
        """
        click.echo("", err=True)
        self.say(f"== {title}")

    def run(self, *words: str) -> None:
        """
        Run one command; raise Exit with its code when it fails.
        """
        process = self.start(*words)
        code = process.wait()
        if code != 0:
            raise click.exceptions.Exit(code)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """
        Show and start one command.
        """
        self._show(words)
        where = self.work if self.work.exists() else self.folder
        return subprocess.Popen([sys.executable, "-m", "orchestrator", *words], cwd=where)

    def run_beside(self, *words: str) -> None:
        """
        Run one command while another one draws its live line; raise Exit with its code when it fails.
        """
        self._show(words)
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=self.work, capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in done.stderr.splitlines():
            self.say(line, style="")
        if done.returncode != 0:
            raise click.exceptions.Exit(done.returncode)

    def _show(self, words: tuple[str, ...]) -> None:
        shown = " ".join(word if word != str(self.work) else "." for word in words)
        self.say(f"$ tpuctl {shown}", style="cyan")

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """
        Make sure that a started command is over.
        """
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def status(self) -> dict[str, object]:
        """
        Return what `tpuctl status --json` says, or nothing when it fails.
        """
        try:
            self._session.record.load()
            return look(self._session)
        except TpuctlError:
            return {}

    @cached_property
    def _session(self) -> Session:
        return Session(Choice(self.work / FILE_NAME, (), "local"), lambda _: None)

    def wait_for_step(
        self, watcher: "subprocess.Popen[bytes]", step: int, seconds: float, other_than: str = ""
    ) -> str:
        """
        Wait until the job has reached *step* on a READY node and return that node's name.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and watcher.poll() is None:
            found = _ready_at(self.status(), step)
            if found and found != other_than:
                return found
            time.sleep(0.3)  # Real processes are watched here; no clock of ours could make them faster.
        raise TpuctlError(
            f"the job did not reach step {step}",
            hint="run the demo again with --keep and look at `tpuctl logs`",
            unchanged="the demo removes all that it made",
        )

    def clear(self) -> None:
        """
        Remove the local cloud with all machines.
        """
        options = self.folder / "cloud" / "options.json"
        if options.exists():
            self._marker = json.loads(options.read_text())["cloud_id"]
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "local", "reset"],
            cwd=self.folder, capture_output=True, check=False,
        )  # fmt: skip

    def leftovers(self) -> list[str]:
        """
        Return processes that carry the local cloud's marker and mounts below the folder.
        """
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        left = [mount for mount in mounts if mount.startswith(str(self.folder))]
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and self._marker and self._marker.encode() in _environ(process):
                left.append(f"process {process.name}")
        return left


@contextmanager
def interruptible() -> Iterator[None]:
    """
    Let a termination and a closed terminal end the block as Ctrl-C does, so that its clean-up runs.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """
    Keep signals of the terminal away from the block, and from the commands that it starts.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _ready_at(status: dict[str, object], step: int) -> str:
    workers = status.get("workers")
    resources = status.get("resources")
    if not isinstance(workers, list) or not isinstance(resources, list):
        return ""
    far = any((w["step"] or 0) >= step and w["phase"] == "run" for w in workers)
    ready = [r["name"] for r in resources if r["kind"] == "TPU" and r["state"] == "READY"]
    return str(ready[0]) if far and len(ready) == 1 else ""
