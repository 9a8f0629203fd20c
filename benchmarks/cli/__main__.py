"""
python -m benchmarks.cli: whole processes of tpuctl beside gcloud, on one local cloud.

Commands are taken in turn, after a round that is not counted. The part `cli` of docs/performance.md is
written unless --print is given.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import document
from benchmarks.cli.benchmark_cloud import PROGRAM, BenchmarkCloud, benchmark_cloud
from benchmarks.table import goal, table, words

NODES, TURNS = 20, 7
YARD = "gcloud compute instances list"
FRESH, WATCHED = "tpuctl status --fresh", "status, while a watcher runs"
PAPER, PLAN = "tpuctl plan --offline", "tpuctl plan"
CLIENTS = "import of the TPU and Storage clients"
LIBRARIES = "import of what `plan --offline` needs of others"
FLOOR = "import of what `plan` needs of others"
_LIBRARIES = (
    "click, filelock, jinja2, pathspec, platformdirs, pydantic, pydantic.type_adapter, rich.console, rich.table,"
    " ruamel.yaml"
)
_CLIENTS = "google.cloud.tpu_v2, google.cloud.storage"


def imported(*modules: str) -> list[str]:
    """Return a process that imports modules and ends, as a command does: without a search for garbage."""
    return [sys.executable, "-c", f"import gc; gc.disable(); import {', '.join(modules)}; gc.freeze()"]


WAYS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "tpuctl --version": [*PROGRAM, "--version"],
    "tpuctl --help": [*PROGRAM, "--help"],
    "tpuctl completion bash": [*PROGRAM, "completion", "bash"],
    PAPER: [*PROGRAM, "plan", "--offline"],
    PLAN: [*PROGRAM, "plan"],
    FRESH: [*PROGRAM, "status", "--fresh"],
    WATCHED: [*PROGRAM, "status"],
    CLIENTS: imported(_CLIENTS),
    LIBRARIES: imported(_LIBRARIES),
    FLOOR: imported(_CLIENTS, _LIBRARIES),
    "import of the Compute, TPU and Storage clients": imported("google.cloud.compute_v1", _CLIENTS),
    YARD: ["gcloud", "compute", "instances", "list", "--format=value(name)"],
    "gcloud compute tpus tpu-vm list": [
        "gcloud", "compute", "tpus", "tpu-vm", "list", "--zone=europe-west4-b", "--format=value(name)",
    ],
    "gcloud --version": ["gcloud", "--version"],
}  # fmt: skip
PARTS = {
    "tpuctl": ("orchestrator",),
    "Google's clients, and what they bring": (
        "google", "grpc", "proto", "requests", "urllib3", "cryptography", "charset_normalizer", "certifi", "idna",
        "opentelemetry", "google_crc32c", "cachetools", "pyasn1", "pyasn1_modules", "rsa", "_cffi_backend", "cffi",
    ),
    "pydantic": ("pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions"),
    "YAML, tables, click and others": (
        "ruamel", "rich", "pygments", "click", "filelock", "platformdirs", "pathspec", "jinja2", "markupsafe",
        "markdown_it", "mdurl",
    ),
}  # fmt: skip
"""What a command imports, by the first word of a module's name; all the rest is Python's own library."""
LIBRARY = "Python's library"
GOALS = {"tpuctl --help": 0.10, PAPER: 0.40, PLAN: 0.40, FRESH: 0.40, WATCHED: 0.20}
WHY = {
    "tpuctl --help": "Starting Python and click is all of it.",
    PAPER: "As before the first `up`, no client is loaded: it is pydantic, YAML, rich and our own modules.",
    PLAN: "The clients of TPU and Storage come first; then the file and all that a plan shows.",
    FRESH: "The clients of TPU and Storage come first; then the file, and our own modules.",
    WATCHED: "Python starts, reads the file and what the watcher has published; Google is not asked.",
}


@dataclass
class Measurement:
    """What the runs of one command took: seconds, seconds of computing, and the most memory in MB."""

    seconds: list[float] = field(default_factory=list)
    computing: list[float] = field(default_factory=list)
    megabytes: float = 0.0

    def add(self, words: Sequence[str], where: BenchmarkCloud) -> None:
        """Run once."""
        begun = time.monotonic()
        process = subprocess.Popen(
            words, cwd=where.work, env=where.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        said = process.stderr.read() if process.stderr else b""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{list(words)}: {said.decode()}")
        self.seconds.append(time.monotonic() - begun)
        self.computing.append(used.ru_utime + used.ru_stime)
        self.megabytes = max(self.megabytes, used.ru_maxrss / 1024)


def main() -> None:
    """Measure, print, and write the table."""
    if shutil.which("gcloud") is None:
        sys.exit("gcloud is not installed, and it is the yardstick")
    with (
        tempfile.TemporaryDirectory(prefix="bench-cli-") as name,
        benchmark_cloud(Path(name), NODES) as where,
    ):
        text = page(measured(where), {name: imports(WAYS[name], where) for name in (PAPER, PLAN, FRESH)})
    print(text)
    if "--print" not in sys.argv:
        document.put("cli", text)


def measured(where: BenchmarkCloud) -> dict[str, Measurement]:
    """Return what each command took, all of them in turn; a watcher runs for those that name it."""
    watched = {name: words for name, words in WAYS.items() if "watcher" in name}
    found = rounds({name: words for name, words in WAYS.items() if name not in watched}, where)
    watcher = subprocess.Popen(
        [*PROGRAM, "watch"], cwd=where.work, env=where.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(5)  # its first look is published, and its own start takes no computing from us
        found |= rounds(watched, where)
    finally:
        watcher.terminate()
        watcher.wait(30)
    return {name: found[name] for name in WAYS}


def rounds(ways: dict[str, list[str]], where: BenchmarkCloud) -> dict[str, Measurement]:
    """Run the commands in turn."""
    for command in ways.values():
        Measurement().add(command, where)
    found = {name: Measurement() for name in ways}
    for _ in range(TURNS):
        for name, command in ways.items():
            found[name].add(command, where)
    return found


def imports(words: Sequence[str], where: BenchmarkCloud) -> dict[str, float]:
    """Return what share of a command's imports is whose: for each module the least of a few runs counts."""
    least: dict[str, int] = {}
    for _ in range(TURNS):
        said = subprocess.run(
            [words[0], "-X", "importtime", *words[1:]],
            cwd=where.work, env=where.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True,
        ).stderr  # fmt: skip
        for own, name in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", said, re.MULTILINE):
            least[name] = min(int(own), least.get(name, int(own)))
    shares = dict.fromkeys((*PARTS, LIBRARY), 0.0)
    for name, own in least.items():
        first = name.partition(".")[0]
        part = next((part for part, names in PARTS.items() if first in names), LIBRARY)
        shares[part] += own / sum(least.values())
    return shares


def page(found: dict[str, Measurement], parts: dict[str, dict[str, float]]) -> str:
    """Return the table and what it says about the goals."""
    seconds = {name: statistics.median(taken.seconds) for name, taken in found.items()}
    ratios = {name: seconds[name] / seconds[YARD] for name in found}
    about = words(
        f"Whole processes on one local cloud with {NODES} TPU nodes and {NODES} VMs; medians of {TURNS}",
        f"runs in turn. The ratio is to `{YARD}`.",
    )
    heads = ("command", "seconds", "ratio", "seconds of computing", "memory, MB")
    rows = [
        (
            name, f"{seconds[name]:.2f}", f"{ratios[name]:.2f}", f"{statistics.median(taken.computing):.2f}",
            f"{taken.megabytes:.0f}",
        )
        for name, taken in found.items()
    ]  # fmt: skip
    whose = table(
        ("share of what is imported", *parts),
        [(part, *(f"{shares[part]:.2f}" for shares in parts.values())) for part in (*PARTS, LIBRARY)],
    )
    goals = [goal(f"`{name}`", ratios[name], limit, "of gcloud", WHY[name]) for name, limit in GOALS.items()]
    goals.append(
        words(
            f"To import what `plan` needs of others, before a line of ours runs, is {ratios[FLOOR]:.2f} of gcloud:",
            f"the official clients of TPU and Storage are {ratios[CLIENTS]:.2f}, pydantic, rich, YAML and the rest",
            f"{ratios[LIBRARIES]:.2f}. Compute's client is loaded",
            "only where a deployment has a VM. A process that stays, with everything",
            "loaded, would answer faster; it was not built: it would act for whoever asks, with the environment",
            "and credentials of somebody else, to save half a second where a watcher's answer already takes",
            f"{ratios[WATCHED]:.2f}.",
            item=True,
        )
    )
    return "\n\n".join(("## Commands", about, table(heads, rows), whose, "\n".join(goals)))


if __name__ == "__main__":
    main()
