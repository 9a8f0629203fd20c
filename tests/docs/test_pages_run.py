"""The pages are run: every shell block in order, in one shell, as a reader would type them."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.pages import blocks, refused, text_of
from tests.e2e.process_lab import REPO
from tests.recipes.kit import HELD

SHIM = """#!/bin/sh
exec {python} -m orchestrator "$@"
"""
STRUCK = "tpuctl local preempt numpy-lm-tpu-g1\n"


@pytest.fixture
def reader(lab):
    """Give a reader's shell: tpuctl on the path, a folder and a local cloud of its own."""
    folder = lab.folder / "bin"
    folder.mkdir()
    (folder / "tpuctl").write_text(SHIM.format(python=shlex.quote(sys.executable)))
    (folder / "tpuctl").chmod(0o755)
    environment = {**lab.environment, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(REPO)}

    def run(script):
        return subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{script}"], cwd=lab.work, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip

    return run


def script_of(page):
    """Return a page's shell blocks as one script."""
    return "\n".join(block.text for block in blocks(page))


def with_a_job_that_waits(script, gate):
    """Let the tutorial's job wait in its middle until its TPU is taken away: computers differ in speed."""
    begin = "cd numpy-lm\n"
    assert script.count(begin) == script.count(STRUCK) == 1
    words = {
        "train.py": "held.py train.py",
        "  env:": f"  env:\\n    HELD_AT: {gate}",
        '"0.05"': '"0"',
        "poll: 15s": "poll: 1s",
    }
    edits = " ".join(f"-e 's|{old}|{new}|'" for old, new in words.items())
    waits = f"cp {HELD} .\necho 200 > {gate}\nsed -i {edits} tpuctl.yaml\n"
    return script.replace(begin, begin + waits).replace(STRUCK, f"{STRUCK}rm {gate}\n")


@pytest.mark.e2e
def test_the_tutorial(reader, lab):
    """From nothing to a trained model that survived, and nothing left."""
    done = reader(with_a_job_that_waits(script_of("docs/tutorial.md"), lab.folder / "gate"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "preemptions     1" in done.stdout + done.stderr
    assert "no machine of numpy-lm is left" in done.stderr
    assert "three minutes" in text_of("docs/tutorial.md")


@pytest.mark.e2e
def test_the_plan_of_private_machines(reader):
    """Two settings, and the plan names the way to each machine."""
    (plan, outside) = blocks("docs/private.md")
    assert not plan.message
    assert outside.message
    done = reader(plan.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "internal only: SSH goes through Identity-Aware Proxy" in done.stdout
    assert "internal only: SSH goes through the VM" in done.stdout


@pytest.mark.e2e
@pytest.mark.skipif(
    not os.environ.get("TPUCTL_RECIPES"), reason="a rehearsal takes a minute; .ci/recipes runs it"
)
def test_your_own_job(reader):
    """A job of a few lines, written on the page, survives its rehearsal."""
    done = reader(script_of("docs/your-own-job.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: job recovered from" in done.stdout + done.stderr


def test_the_workflow_for_ci(reader, lab):
    """Its plan step runs in an example's folder as in a user's, and what the summary reads is there."""
    from ruamel.yaml import YAML

    workflow = YAML(typ="safe").load((REPO / "examples/ci/tpuctl.yml").read_text())
    steps = {step["name"]: step["run"] for step in workflow["jobs"]["rehearse"]["steps"] if "name" in step}
    plan = steps["The plan, with its price"]
    done = reader(f"cp {REPO}/examples/numpy-lm/* . && {plan}")
    assert done.returncode == 0, done.stdout + done.stderr
    price = json.loads((lab.work / "plan.json").read_text())["price"]
    for key in re.findall(r"p\['price'\]\['(\w+)'\]", steps["Say it on the summary page"]):
        assert price[key] > 0
    assert [
        line for line in (steps["The job, its machines taken away"],) if refused(line.split(" >")[0])
    ] == []
