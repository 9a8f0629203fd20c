"""One local cloud with process machines, seen from outside over HTTP, and the steps that jobs on it make."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from orchestrator.emulator.control import call
from tests.e2e.process_lab import ProcessLab

PROJECT, ZONE = "local-project", "europe-west4-b"
TIMEOUT = 900.0
NODES = f"/v2/projects/{PROJECT}/locations/{ZONE}/nodes"
T = TypeVar("T")


class RecoveryLab(ProcessLab):
    """A local cloud with process machines, and what each run measures on it."""

    def __init__(self, folder: Path, name: str = "e2e", *words: str) -> None:
        super().__init__(folder, name)
        self.tpuctl("local", "start", "--notice", "30", *words)

    @property
    def endpoint(self) -> str:
        """Return where the local cloud is."""
        found: str = json.loads((self.cloud / "daemon.json").read_text())["endpoint"]
        return found

    def kill(self, node: str, *, notice: bool = False) -> float:
        """Take a node's machines away and return when that was; without *notice* it is a SIGKILL of everything."""
        began = time.time()
        call("preempt", {"name": node, "notice": notice}, folder=self.cloud)
        return began

    def made(self, node: str) -> tuple[float, float]:
        """Return from when to when the cloud made a node, by its own operation."""
        path = f"/v2/projects/{PROJECT}/locations/{ZONE}/operations"
        for found in json.loads(self.get(path))["operations"]:
            about = found["metadata"]
            if about["verb"] == "create" and about["target"].endswith(f"/{node}") and found.get("done"):
                return _seconds(about["createTime"]), _seconds(about["endTime"])
        raise LookupError(node)


def steps(path: Path) -> list[tuple[float, int]]:
    """Return when each step was made, and by which process."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), int(pid)) for at, pid in (line.split() for line in lines)]


def next_job(path: Path, before: int) -> float | None:
    """Return when the process after *before* made its first step, None when it has not."""
    return next((at for at, pid in reversed(_firsts(path)) if pid != before), None)


def newest(path: Path) -> int:
    """Return the process that made the last step, 0 for none."""
    made = steps(path)
    return made[-1][1] if made else 0


def wait_for(what: str, read: Callable[[], T | None]) -> T:
    """Look until there is something."""
    end = time.monotonic() + TIMEOUT
    while (found := read()) is None:
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)
    return found


def _firsts(path: Path) -> list[tuple[float, int]]:
    first: dict[int, float] = {}
    for at, pid in steps(path):
        first.setdefault(pid, at)
    return [(at, pid) for pid, at in first.items()][-1:]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
