"""A local cloud of its own for the benchmark: a deployment that runs, more nodes, and as many VMs for gcloud."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = [sys.executable, "-m", "orchestrator"]
REPO = Path(__file__).parents[2]
ZONE = "europe-west4-b"
FOREIGN = ("TPUCTL_", "GOOGLE_", "CLOUDSDK_", "GCE_METADATA", "STORAGE_EMULATOR", "PYTHONDONTWRITEBYTECODE")
FILE = f"""\
name: bench
tpu: {{type: v5litepod-8, zones: [{ZONE}]}}
vm: none
job: {{command: sleep 1000}}
"""


@dataclass(frozen=True)
class BenchmarkCloud:
    """The folder of the deployment file, and what commands need in their environment."""

    work: Path
    environment: dict[str, str]
    endpoint: str

    def tpuctl(self, *words: str) -> str:
        """Run a command to its end and return what it prints."""
        return subprocess.run(
            [*PROGRAM, *words],
            cwd=self.work, env=self.environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    def post(self, path: str, body: dict[str, object]) -> None:
        """Ask the local cloud for something."""
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(
            urllib.request.Request(self.endpoint + path, data, headers), timeout=30
        ).close()


@contextmanager
def benchmark_cloud(folder: Path, nodes: int) -> Iterator[BenchmarkCloud]:
    """Run a local cloud with *nodes* TPU nodes, one of them of a deployment, and as many VMs."""
    work = folder / "work"
    work.mkdir()
    (work / "tpuctl.yaml").write_text(FILE)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment = {
        **inherited, "PYTHONPATH": str(REPO), "TPUCTL_LOCAL_DIR": str(folder / "cloud"), "TPUCTL_CLOUD": "local",
        "CLOUDSDK_CONFIG": str(folder / "gcloud"), "NO_COLOR": "1",
    }  # fmt: skip
    bare = BenchmarkCloud(work, environment, "")
    try:
        bare.tpuctl("local", "start", "--latency", "instant", "--no-fresh-project")
        names = json.loads(bare.tpuctl("local", "env", "--json"))["variables"]
        address = json.loads((folder / "cloud" / "daemon.json").read_text())
        one = BenchmarkCloud(
            work, {**environment, **names, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}, address["endpoint"]
        )
        one.tpuctl("up")
        _fill(one, address["project"], nodes)
        yield one
    finally:
        bare.tpuctl("local", "reset")


def _fill(one: BenchmarkCloud, project: str, nodes: int) -> None:
    tpu = {"acceleratorType": "v5litepod-1", "runtimeVersion": "v2-alpha-tpuv5-lite"}
    image = "projects/debian-cloud/global/images/family/debian-13"
    for number in range(1, nodes):
        one.post(f"/v2/projects/{project}/locations/{ZONE}/nodes?nodeId=other{number}", dict(tpu))
    for number in range(nodes):
        one.post(
            f"/compute/v1/projects/{project}/zones/{ZONE}/instances",
            {
                "name": f"vm{number}",
                "machineType": f"zones/{ZONE}/machineTypes/e2-small",
                "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}],
                "networkInterfaces": [{"network": "global/networks/default"}],
            },
        )
