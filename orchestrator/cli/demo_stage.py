"""
The demo's stage: a folder, a local cloud of its own, and the public commands run as a user would.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click

NAME = "demo"


class Stage:
    """
    Run commands in a folder of their own and look at their effects through `status --json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TPUCTL_", "GOOGLE_", "CLOUDSDK_"))},
            "TPUCTL_LOCAL_DIR": str(folder / "cloud"),
            "TPUCTL_CLOUD": "local",
        }
        self._marker = ""

    def say(self, text: str) -> None:
        """
        Print one line of the demo's own.
        """
        click.secho(text, err=True, bold=True)

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
        shown = " ".join(word if word != str(self.work) else "." for word in words)
        click.secho(f"$ tpuctl {shown}", err=True, fg="cyan")
        where = self.work if self.work.exists() else self.folder
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *words], cwd=where, env=self._environment
        )

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """
        Make sure that a started command is over.
        """
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=30)

    def status(self) -> dict[str, object]:
        """
        Return what `tpuctl status --json` says, or nothing when it fails.
        """
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "status", "--json"],
            cwd=self.work, env=self._environment, capture_output=True, check=False,
        )  # fmt: skip
        try:
            found: dict[str, object] = json.loads(done.stdout)
        except ValueError:
            return {}
        return found

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
        raise click.ClickException(
            "the job did not get that far; run the demo again with --keep and look at `tpuctl logs`"
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
            cwd=self.folder, env=self._environment, capture_output=True, check=False,
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
