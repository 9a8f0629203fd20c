"""
Two other designs, each as the loop that it is, in a process of its own, over the same local cloud.

`cron`: a script under `watch -n 600` keeps one TPU in being; apart from it, cron starts the job on the VM
every 600 s under flock. `babysit`: tpunicorn's loop, which looks every 30 s, deletes, creates, waits for
READY by the same looks, and runs the command. Their periods are scaled; what cloud and job take is not.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

ONLINE = "READY"


class Tpu:
    """One node by name, through the calls that gcloud makes; each waits for its operation."""

    def __init__(self, nodes: str, name: str) -> None:
        self._nodes, self.name = nodes, name

    def state(self) -> str:
        """Return the node's state, empty when there is none."""
        try:
            return str(self._call(f"{self._nodes}/{self.name}")["state"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return ""
            raise

    def delete(self) -> None:
        """Delete the node and wait."""
        self._done(self._call(f"{self._nodes}/{self.name}", method="DELETE"))

    def create(self) -> None:
        """Create the node and wait."""
        body = {
            "acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite",
            "schedulingConfig": {"spot": True},
        }  # fmt: skip
        self._done(self._call(f"{self._nodes}?nodeId={self.name}", body, "POST"))

    def _done(self, operation: dict[str, Any]) -> None:
        base = self._nodes.split("/v2/")[0]
        while not operation.get("done"):
            time.sleep(0.05)
            operation = self._call(f"{base}/v2/{operation['name']}")

    def _call(self, url: str, body: object = None, method: str = "GET") -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            url, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


class PeerLoop:
    """What both have: the node, the job on the VM, whose disk keeps the checkpoints, and a log."""

    def __init__(self, tpu: Tpu, folder: Path) -> None:
        self.tpu, self.folder = tpu, folder
        self._job: subprocess.Popen[bytes] | None = None
        self.python = sys.executable

    def say(self, what: str) -> None:
        """Note what happens now."""
        print(f"{time.time()} {what}", flush=True)

    def replace(self, state: str) -> None:
        """Delete what is left of the node and create it anew, one after the other."""
        self.say("seen")
        if state:
            self.tpu.delete()
        self.tpu.create()
        self.say("ready")

    def install(self) -> None:
        """Install what the job needs in a new environment, as on a machine with an empty disk."""
        self.say("start")
        shutil.rmtree(self.folder / "venv", ignore_errors=True)
        run = partial(subprocess.run, check=True, stdout=sys.stderr)
        run([sys.executable, "-m", "venv", self.folder / "venv"])
        run([self.folder / "venv/bin/pip", "install", "-q", *os.environ["BENCH_PINS"].split()])
        self.python = str(self.folder / "venv/bin/python")
        self.say("installed")

    def start(self) -> None:
        """Start the job under flock, as both do; a job whose TPU has died has died with it."""
        if self._job is not None and self._job.poll() is None:
            return
        words = ["flock", "-n", "-E", "75", "job.lock", self.python, "job.py"]
        self.say("start")
        with (self.folder / "job.log").open("ab") as log:
            self._job = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log)


def cron(loop: PeerLoop, period: float) -> None:
    """Keep the node, looking *period* after the last look has ended; start the job at multiples of *period*."""

    def keep() -> None:
        while True:
            state = loop.tpu.state()
            if state != ONLINE:
                loop.replace(state)
            time.sleep(period)

    threading.Thread(target=keep, daemon=True).start()
    while True:
        time.sleep(period - time.time() % period)
        if loop.tpu.state() == ONLINE:
            loop.start()


def babysit(loop: PeerLoop, period: float) -> None:
    """Look, replace what was preempted, wait until it is online by further looks, run the command."""
    loop.replace("")
    loop.start()
    while True:
        time.sleep(period)
        if loop.tpu.state() == "PREEMPTED":
            loop.replace("PREEMPTED")
            while loop.tpu.state() != ONLINE:
                time.sleep(period)
            loop.start()


def reinstall(loop: PeerLoop, period: float) -> None:
    """Look, replace what was preempted, install anew, run the command."""
    state = ""
    while True:
        if state != ONLINE:
            loop.replace(state)
            loop.install()
            loop.start()
        time.sleep(period)
        state = loop.tpu.state()


if __name__ == "__main__":
    design, nodes, node, place, seconds = sys.argv[1:]
    {"cron": cron, "babysit": babysit, "reinstall": reinstall}[design](
        PeerLoop(Tpu(nodes, node), Path(place)), float(seconds)
    )
