"""The command line as a process, and in this process."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.cli.main import run
from orchestrator.domain.ports import NewVm
from orchestrator.google.bodies import as_json, instance_body

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    """A terminal, as a keyboard at which somebody types or as a screen."""

    def isatty(self):
        """Say that it is one."""
        return True


def environment(**more):
    """Return an environment with nothing of the person who runs the tests in it."""
    foreign = ("TPUCTL_", "GOOGLE_", "CLOUDSDK_", "GCLOUD_")
    retained = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    path = os.pathsep.join([str(ROOT), retained.get("PYTHONPATH", "")])
    return {**retained, "PYTHONPATH": path, "NO_GCE_CHECK": "true", **more}


def tpuctl(*words, cwd, before=(), **more):
    """Run one command in a process of its own, with no terminal."""
    return subprocess.run(
        [*before, sys.executable, "-m", "orchestrator", *words],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def here(capsys, *words):
    """Run one command in this process; return its exit code, stdout and stderr."""
    code = run(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def document(out):
    """Return the one JSON document that *out* is."""
    found = json.loads(out)
    assert found["schema_version"] == 1
    return found


def stray_vm(cloud, zone):
    """Make a VM with name, label and script of the one that is there, in a zone that nobody names."""
    state = cloud.model.kernel.state
    at_hand = next(iter(state.instances.values()))
    script = {"startup-script": state.machines[at_hand.machine_id].attributes["startup-script"]}
    new = NewVm(
        at_hand.name, zone, "e2-small", 10, spot=False, labels=dict(at_hand.labels), metadata=script,
        service_account="", scopes=(), ttl=86400.0,
    )  # fmt: skip
    cloud.model.compute.insert(zone, as_json(instance_body(new), presence=True))
